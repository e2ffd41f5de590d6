"""Write the files of the viral and non-viral stretches of a run."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from virnucpro.classifier.calibration import Calibration
from virnucpro.classifier.consensus import RecordScores
from virnucpro.classifier.decision import Decision
from virnucpro.classifier.regions import find_regions
from virnucpro.classifier.run_scores import WindowBlocks
from virnucpro.pipeline.run.session import Session
from virnucpro.report.extract import write_region_extract
from virnucpro.report.extract_options import ExtractOptions
from virnucpro.report.regions import write_bed, write_bedgraph, write_gff3, write_regions
from virnucpro.run_dir import RunDirectory

__all__ = ["write_region_files"]

_FIRST_WITH_REGIONS: Final = 4
"""Version of the tables from which on runs have these files."""


def write_region_files(
    target: RunDirectory,
    session: Session,
    windows: WindowBlocks,
    records: RecordScores,
    decision: Decision,
    calibration: Calibration | None,
) -> NDArray[np.bool_]:
    """Write regions.tsv, BED, GFF3, bedGraph and viral_regions.fasta; delete those of before.

    Without a calibration only the bedGraph is written. The sequences are written if viral records
    are extracted, as FASTQ if the index has qualities.

    Returns
    -------
    ``(n_records,)``
        Whether each record has viral and non-viral stretches.

    Raises
    ------
    OSError
        If a file cannot be written.
    """
    index, manifest = session.index, session.manifest
    written = set()
    provirus = np.zeros(index.n_records, np.bool_)
    if manifest.table_version >= _FIRST_WITH_REGIONS:
        write_bedgraph(target.scores_bedgraph, index, windows)
        written.add(target.scores_bedgraph)
    if manifest.table_version >= _FIRST_WITH_REGIONS and calibration:
        regions = find_regions(index, windows, records, decision, calibration)
        provirus = regions.in_both(index.n_records)
        write_regions(target.regions, index, regions)
        write_bed(target.regions_bed, index, regions)
        write_gff3(target.regions_gff3, index, regions)
        written |= {target.regions, target.regions_bed, target.regions_gff3}
        options = ExtractOptions(**manifest.extracts)
        if "viral" in options.calls:
            fastq = index.has_qualities
            path = target.region_extract(fastq=fastq, compressed=options.compress)
            inserted = regions.select(regions.viral & provirus[regions.record])
            version = manifest.table_version
            write_region_extract(path, index, inserted, fastq=fastq, version=version)
            written.add(path)
    for path in target.region_files:
        if path not in written:
            path.unlink(missing_ok=True)
    return provirus
