"""A new user follows scripts/slurm/README.md word for word: from sbatch to a table."""

import os
import re
from pathlib import Path

import pytest
from programs import run_captured
from samples import random_records

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(340)]

SCRIPTS = Path(__file__).parents[2] / "scripts" / "slurm"
CPUS = "--cpus-per-task="


@pytest.fixture
def user(cluster):
    """A user's folder, where the scripts ask for the CPUs of this cluster's nodes."""
    folder = cluster.folder / "user"
    scripts = folder / "scripts" / "slurm"
    scripts.mkdir(parents=True)
    for script in SCRIPTS.glob("*.sbatch"):
        text = script.read_text()
        (scripts / script.name).write_text(text.replace(f"{CPUS}8", f"{CPUS}2"))
    text = random_records(400, seed=40, letters="ACGT", least=200, most=900, name="c")
    (folder / "contigs.fa").write_text(text)
    (folder / "files").mkdir()
    records = (folder / "contigs.fa").read_text().splitlines(keepends=True)
    for number in range(3):
        (folder / "files" / f"{number}.fa").write_text("".join(records[: 20 * (number + 1)]))
    return folder


def test_from_sbatch_to_a_table(cluster, user, difference_of):
    blocks = re.findall(
        r"^```bash\n(.*?)^```", (SCRIPTS / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    program = Path(cluster.environment["VIRNUCPRO"])
    environment = {
        **cluster.environment,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "SBATCH_MEM_PER_NODE": "1500M",  # what this site requires
    }
    printed = {}
    for block in blocks:
        if "predictions.tsv" in block:
            wait_for_jobs(cluster)
        # status exits with 2 as long as no task has begun
        mode = "-uc" if "virnucpro status" in block else "-euc"
        done = run_captured("bash", mode, block, cwd=user, env=environment)
        assert done.returncode == 0, f"{block}{done.stdout}{done.stderr}"
        printed[block] = done.stdout
    wait_for_jobs(cluster)
    logs = "\n".join(f"-- {path}\n{path.read_text()}" for path in user.rglob("slurm-*.*"))
    shown = next(text for block, text in printed.items() if "predictions.tsv" in block)
    assert "predictions.tsv" in shown, logs
    assert "\nseq_name\t" in shown, logs
    table = (user / "results" / "predictions.tsv").read_bytes()
    assert table.count(b"\n") == 401
    for other in ("by-hand", "one-job"):
        assert (user / other / "predictions.tsv").read_bytes() == table, logs
    assert difference_of(user / "results", user / "one-node") == []
    launched = (user / "tables" / "launch.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in launched[1:]] == ["0.fa", "1.fa", "2.fa"]
    assert all("\tdone\t" in line for line in launched[1:]), logs
    for run in ("results", "by-hand", "one-job"):
        assert not (user / run / "missing.tsv").exists()


def wait_for_jobs(cluster):
    cluster.until("end of all jobs", lambda: not cluster.queue())
