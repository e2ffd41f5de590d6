process VIRNUCPRO_PREDICT {
    tag "$meta.id"
    label 'process_high'

    conda "${moduleDir}/environment.yml"
    container "${ workflow.containerEngine in ['singularity', 'apptainer'] && !task.ext.singularity_pull_docker_container ?
        'https://depot.galaxyproject.org/singularity/virnucpro:0.1.0--pyhdfd78af_0' :
        'quay.io/biocontainers/virnucpro:0.1.0--pyhdfd78af_0' }"

    input:
    tuple val(meta), path(sequences)

    output:
    tuple val(meta), path("${prefix}.predictions.tsv"), emit: predictions
    tuple val(meta), path("${prefix}.windows.tsv"), emit: windows
    tuple val(meta), path("${prefix}.run.json"), emit: run
    tuple val(meta), path("${prefix}.viruses.fast[aq]*"), emit: viruses, optional: true
    tuple val(meta), path("${prefix}.regions.*"), emit: regions, optional: true
    tuple val(meta), path("${prefix}.scores.bedgraph"), emit: scores, optional: true
    tuple val(meta), path("${prefix}.embeddings.h5"), emit: embeddings, optional: true
    tuple val(meta), path("${prefix}.report.html"), emit: report, optional: true
    tuple val(meta), path("${prefix}.virnucpro*_mqc.json"), emit: mqc, optional: true
    tuple val("${task.process}"), val('virnucpro'), eval("virnucpro --version | sed 's/virnucpro //'"), topic: versions, emit: versions_virnucpro

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: ''
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    virnucpro \\
        predict \\
        $sequences \\
        --outdir out \\
        --threads $task.cpus \\
        --quiet \\
        $args

    for path in out/*.tsv out/*.fast[aq]* out/*.h5 out/*.html out/tracks/* out/run/*_mqc.json out/run/run.json; do
        if [ -f "\$path" ]; then
            mv "\$path" "${prefix}.\${path##*/}"
        fi
    done
    """

    stub:
    def args = task.ext.args ?: ''
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    echo $args
    touch ${prefix}.predictions.tsv
    touch ${prefix}.windows.tsv
    touch ${prefix}.run.json
    touch ${prefix}.viruses.fasta
    """
}
