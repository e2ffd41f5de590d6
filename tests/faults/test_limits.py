"""Row 23: limits of open files, address space, stack and file size."""

import pytest
from cases import slow
from programs import VIRNUCPRO, run_captured


def limited(limit, *arguments):
    """Run the program with a limit of the shell."""
    return run_captured(
        "bash", "-c", f'ulimit {limit} && exec "$@"', "bash", *VIRNUCPRO, *arguments
    )


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["-n 64", "-s 256"])
def test_a_run_completes_with_few_resources(limit, few_fasta, tmp_path, undisturbed, difference_of):
    done = limited(limit, "predict", few_fasta, "-o", tmp_path / "run", "--devices", "cpu:1")
    assert done.returncode == 0, done.stderr
    assert difference_of(undisturbed, tmp_path / "run") == []


SHORT = [
    ("-n 12", "mini", "raise the limit of open files (ulimit -n)"),
    slow("-v 400000", "mini-deep", "ulimit -v"),
    ("-f 20", "mini", "exceeds the size limit: raise it (ulimit -f)"),
]


@pytest.mark.parametrize(("limit", "bundle", "message"), SHORT)
def test_the_error_names_the_exhausted_resource(limit, bundle, message, few_fasta, tmp_path):
    command = ("predict", few_fasta, "-b", bundle, "-o", tmp_path / "run", "--devices", "cpu:1")
    done = limited(limit, *command)
    assert done.returncode == 1, done.stderr
    assert "virnucpro: error:" in done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "predictions.tsv").exists()
