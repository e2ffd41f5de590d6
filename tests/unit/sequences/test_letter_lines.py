import gzip
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.errors import InputError
from virnucpro.sequences.records import line_of_letter, read_records

lines = st.lists(st.text("ACGT \t", max_size=6), max_size=4)


@given(
    st.lists(st.tuples(lines, lines), min_size=1, max_size=4),
    st.data(),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["", "\ufeff", "\n\n", "\n  "]),
    st.sampled_from([bytes, gzip.compress]),
)
def test_the_line_of_an_invalid_letter_is_that_of_an_editor(
    tmp_path_factory, records, data, end, start, pack
):
    number = data.draw(st.integers(1, len(records)))
    written = [start]
    for record, (before, after) in enumerate(records, 1):
        bad = ["ACE"] if record == number else []
        written += [f">r{record}{end}", *(line + end for line in (*before, *bad, *after))]
    text = "".join(written)
    path = tmp_path_factory.getbasetemp() / "lines.fa"
    path.write_bytes(pack(text.encode()))
    wanted = [line.strip() for line in text.replace(end, "\n").split("\n")].index("ACE") + 1
    with pytest.raises(InputError, match=rf"record {number} \(r{number}\): 'E' \(line {wanted}, l"):
        list(read_records(str(path)))


def test_fastq_has_four_lines_a_record(tmp_path):
    path = tmp_path / "in.fq"
    path.write_bytes(b"\n" + b"@a\nAC\n+\nII\n" * 2 + b"@b\nAE\n+\n@I\n")
    assert line_of_letter(str(path), 3, 2) == 11


def test_a_pipe_has_no_lines(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path / "absent", "-"):
        assert line_of_letter(str(path), 1, 1) is None
