"""Snakemake wrapper of ``virnucpro predict``."""

__author__ = "The virnucpro authors"
__license__ = "MIT"

import shutil
import tempfile
from pathlib import Path

from snakemake.shell import shell

FILES = {
    "predictions": "predictions.tsv",
    "windows": "tracks/windows.tsv",
    "viruses": "viruses.fasta",
    "viruses_gz": "viruses.fasta.gz",
    "viruses_fastq": "viruses.fastq",
    "viruses_fastq_gz": "viruses.fastq.gz",
    "regions": "regions.tsv",
    "regions_bed": "tracks/regions.bed",
    "regions_gff": "tracks/regions.gff3",
    "scores": "tracks/scores.bedgraph",
    "embeddings": "embeddings.h5",
    "report": "report.html",
    "multiqc": "run/virnucpro_mqc.json",
    "multiqc_calls": "run/virnucpro_calls_mqc.json",
    "multiqc_scores": "run/virnucpro_scores_mqc.json",
    "run": "run/run.json",
}

unknown = sorted(set(snakemake.output.keys()) - set(FILES))
if unknown or len(snakemake.output.keys()) != len(snakemake.output):
    raise ValueError(
        f"outputs of virnucpro/predict are named, one of each: {', '.join(FILES)}; "
        f"got {', '.join(unknown) or 'one without a name'}"
    )

extra = snakemake.params.get("extra", "")
resume = "" if "--force" in extra.split() else "--resume"
log = snakemake.log_fmt_shell(stdout=True, stderr=True)


def predict(folder: Path) -> None:
    """Run, resume or replace the run in `folder`; copy the named outputs."""
    shell(
        "virnucpro predict {snakemake.input:q} --outdir {folder:q} {resume}"
        " --threads {snakemake.threads} --quiet {extra} {log}"
    )
    for name, path in snakemake.output.items():
        if not (folder / FILES[name]).exists():
            raise FileNotFoundError(
                f"output {name}: the run has no {FILES[name]}; remove the output from the rule, "
                "or add the option that writes it to params.extra"
            )
        shutil.copyfile(folder / FILES[name], path)


run_folder = snakemake.params.get("run_folder")
if run_folder:
    # Stays: Snakemake's next attempt computes only what is missing.
    predict(Path(run_folder))
else:
    with tempfile.TemporaryDirectory(prefix="virnucpro-") as temporary:
        predict(Path(temporary, "run"))
