"""cite and completion, and the exit code of status."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from virnucpro.cli.main import main
from virnucpro.report.citations import PUBLICATIONS

DOI = re.compile(r"10\.\d+/[\w.]+\w")


def test_cite_prints_what_the_citation_file_lists(called):
    printed = DOI.findall(called("cite", code=0).stdout)
    listed = DOI.findall((Path(__file__).parents[3] / "CITATION.cff").read_text())
    assert printed == listed == [DOI.findall(text)[0] for text in PUBLICATIONS.values()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_knows_commands_and_options(shell, capsys, tmp_path):
    assert main(["completion", shell]) == 0
    script = tmp_path / f"script.{shell}"
    script.write_text(capsys.readouterr().out)
    for word in ("predict", "rescore", "prevalence"):
        assert word in script.read_text()
    if shutil.which(shell):
        subprocess.run([shell, "-n", script], check=True)


def test_bash_completes_an_option(capsys, tmp_path):
    if not shutil.which("bash"):
        pytest.skip("needs bash")
    main(["completion", "bash"])
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    program = (
        f"source {script}; COMP_WORDS=(virnucpro predict --prec); COMP_CWORD=2; "
        'function=$(complete -p virnucpro | sed "s/.*-F \\([^ ]*\\).*/\\1/"); '
        '$function; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["--precision"]
