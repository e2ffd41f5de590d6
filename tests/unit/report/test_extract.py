"""FASTA files of called records."""

import gzip

import numpy as np
import pytest

from virnucpro.errors import UsageError
from virnucpro.report.extract import write_extract
from virnucpro.report.extract_options import ExtractOptions

RECORDS = [("a", "acgu" * 30), ("b\x1b[31m", "ACG"), ("a", "NNN"), ("empty", ""), ("", "GATTACA")]
SCORE = np.array([0.97314, 0.5, np.nan, np.nan, 1.0], np.float32)
WANTED = f"""\
>a score=0.9731 length=120
{"ACGT" * 20}
{"ACGT" * 10}
>a score=NA length=3
NNN
>empty score=NA length=0
>unnamed_5 score=1.0000 length=7
GATTACA
"""


@pytest.fixture(scope="module")
def index(index_records):
    return index_records(RECORDS)


@pytest.mark.parametrize("name", ["viral.fasta", "viral.fasta.gz"])
def test_chosen_records_are_written_in_input_order(index, tmp_path, name):
    chosen = np.array([True, False, True, True, True])
    write_extract(tmp_path / name, index, chosen, SCORE)
    data = (tmp_path / name).read_bytes()
    assert (gzip.decompress(data) if name.endswith("gz") else data).decode() == WANTED
    write_extract(tmp_path / f"again-{name}", index, chosen, SCORE)
    assert (tmp_path / f"again-{name}").read_bytes() == data


@pytest.mark.parametrize("name", ["viral.fasta", "viral.fasta.gz"])
def test_without_a_record_the_file_is_empty(index, tmp_path, name):
    write_extract(tmp_path / name, index, np.zeros(5, bool), SCORE)
    data = (tmp_path / name).read_bytes()
    assert (gzip.decompress(data) if name.endswith("gz") else data) == b""


def test_control_characters_of_names_are_encoded(index, tmp_path):
    write_extract(tmp_path / "b.fasta", index, np.arange(5) == 1, SCORE)
    assert (tmp_path / "b.fasta").read_bytes() == b">b%1B[31m score=0.5000 length=3\nACG\n"


def test_an_unknown_call_is_refused():
    with pytest.raises(UsageError, match="cannot extract 'virus': give viral, ambiguous"):
        ExtractOptions(("viral", "virus"))
