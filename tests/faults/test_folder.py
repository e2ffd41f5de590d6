"""Row 12: a run folder that is read-only, or disappears during the run."""

import shutil
import subprocess

import pytest
from cases import slow

import virnucpro
from virnucpro.cli.main import main
from virnucpro.errors import RunError
from virnucpro.launch import LauncherOrchestrator
from virnucpro.run_dir import RunDirectory
from virnucpro.store.writer import ShardWriter


def content(folder):
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file() and path.name != "run.lock"
    }


@pytest.mark.parametrize("option", ["--resume", "--force"])
def test_a_read_only_run_is_unchanged(option, disk, few_fasta, undisturbed, called):
    small = disk("4m")
    folder = shutil.copytree(undisturbed, small / "run")
    before = content(folder)
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    printed = called("predict", few_fasta, "-o", folder, option, code=1).stderr
    assert f"Read-only file system: '{folder}" in printed
    assert "check the permissions of this path, or choose another one" in printed
    assert "Read-only file system" in called("aggregate", folder, code=1).stderr
    assert "complete" in called("status", folder, code=0).stdout
    assert content(folder) == before


def test_a_new_run_on_a_read_only_disk_is_refused(disk, few_fasta, called):
    small = disk("1m")
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    printed = called("predict", few_fasta, "-o", small / "run", code=1).stderr
    assert "Read-only file system" in printed
    assert "choose another one" in printed
    assert list(small.iterdir()) == []


def test_a_folder_whose_parent_is_a_file_is_refused(tmp_path, few_fasta, capsys):
    (tmp_path / "file").write_text("text")
    assert main(["predict", str(few_fasta), "-o", str(tmp_path / "file" / "run")]) == 1
    assert f"File exists: {tmp_path / 'file'}). Choose another" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "text"


def test_a_folder_of_other_files_is_refused(tmp_path, few_fasta, called):
    (tmp_path / "notes.txt").touch()
    printed = called("predict", few_fasta, "-o", tmp_path, code=1).stderr
    assert "is not empty (notes.txt) and has no valid run/run.json: choose another" in printed


@pytest.mark.parametrize("folder", ["/proc/run", "/proc/no/run", "/dev/null/run", "/dev/null/a/b"])
def test_a_folder_of_the_kernel_is_refused(few_fasta, folder, capsys):
    for call in (
        lambda: virnucpro.classify(few_fasta, outdir=folder),
        lambda: LauncherOrchestrator().launch(few_fasta.parent, folder, "cpu:1", few_fasta.name),
    ):
        with pytest.raises(RunError, match=f"^{folder}: no folder can be created here .*Choose"):
            call()
    assert main(["predict", str(few_fasta), "-o", folder]) == 1
    assert f"{folder}: no folder can be created here" in capsys.readouterr().err


def test_a_rank_does_not_create_a_lost_run_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="shards"):
        ShardWriter(RunDirectory(tmp_path / "gone"), 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "moment",
    [
        "ranks",
        *map(slow, ("verifying", "writing embeddings")),
    ],
)
def test_a_lost_disk_is_not_replaced_by_a_new_folder(moment, disk, few_fasta, reporting, called):
    small = disk("4m")
    folder = small / "run"
    moments = {moment}

    def unmount(event):
        if any(map(event.startswith, moments)):
            moments.clear()
            subprocess.run(["umount", "-l", small], check=True)

    reporting(unmount)
    words = ["predict", few_fasta, "-o", folder, "--devices", "cpu:1"]
    words += ["--embeddings"] * (moment == "writing embeddings")
    printed = called(*words, code=1).stderr
    assert str(folder) in printed[printed.index("virnucpro: error:") :]
    assert "Traceback" not in printed
    assert list(small.iterdir()) == []


ATTEMPT = "tasks/0000.01234567"
PLACES = [
    *("run/run.lock", "run", "tracks"),
    *("run/shards", "run/shards/rank-0000", "run/logs", "run/logs/rank-0000.log"),
    *(f"run/{ATTEMPT}", f"run/{ATTEMPT}/shards", f"run/{ATTEMPT}/shards/rank-0000"),
    *(f"run/{ATTEMPT}/logs", f"run/{ATTEMPT}/logs/rank-0000.log"),
]


@pytest.mark.parametrize("name", PLACES)
def test_files_behind_links_out_of_the_run_are_unchanged(
    name, copy_of_run, few_fasta, tmp_path, called
):
    path = copy_of_run / name
    of_task = ATTEMPT in name
    if of_task:
        for folder in ("shards", "logs"):
            shutil.copytree(copy_of_run / "run" / folder, copy_of_run / "run" / ATTEMPT / folder)
    elsewhere = tmp_path / "elsewhere"
    if not path.exists():  # a finished run has neither lock nor logs
        path.touch()
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    segments = [elsewhere] if elsewhere.is_file() else elsewhere.rglob("*.h5")
    for segment in segments:  # damaged segments, which a repair would remove
        segment.write_bytes(segment.read_bytes()[:-1])
    before = content(tmp_path)
    again = ["predict", str(few_fasta), "-o", str(copy_of_run)]
    commands = [["verify", "--repair", str(copy_of_run)], [*again, "--force"]]
    for command in commands if of_task else [*commands, [*again, "--resume"]]:
        assert f"{path} is a symbolic link" in called(*command, code=1).stderr
        assert content(tmp_path) == before


def test_a_link_in_the_place_of_a_new_index_is_refused(few_fasta, copy_of_run, tmp_path, called):
    (tmp_path / "elsewhere").mkdir()
    for folder in (copy_of_run, tmp_path / "new"):
        (folder / "run").mkdir(parents=True, exist_ok=True)
        (folder / "run" / "index.next").symlink_to(tmp_path / "elsewhere")
        printed = called("predict", few_fasta, "-o", folder, "--force", code=1).stderr
        assert f"{folder / 'run' / 'index.next'} is a symbolic link" in printed
        assert (folder / "run" / "index.next").is_symlink()


@pytest.mark.parametrize("of", ["", ATTEMPT])
@pytest.mark.parametrize("name", ["shards/rank-old", "shards/rank-0007", "launches"])
def test_files_behind_links_are_not_taken_for_unfinished_ones(
    of, name, copy_of_run, few_fasta, tmp_path, called
):
    if of:
        shutil.copytree(copy_of_run / "run" / "shards", copy_of_run / "run" / of / "shards")
    elsewhere = tmp_path / "elsewhere"
    for thesis in ("thesis.7-00112233.tmp", "unit-000000.h5.7-00112233.tmp"):
        (elsewhere / thesis).mkdir(parents=True)
        (elsewhere / thesis / "chapter").write_text("of years")
    path = copy_of_run / "run" / of / name
    shutil.rmtree(path, ignore_errors=True)
    path.symlink_to(elsewhere)
    before = content(elsewhere)
    again = ["predict", str(few_fasta), "-o", str(copy_of_run)]
    refused = name != "shards/rank-old"  # a name that no run has
    for command in (["aggregate", copy_of_run], [*again, "--resume"]):
        code = int(refused and (not of or command[0] == "aggregate"))
        printed = called(*command, code=code).stderr
        assert not code or f"{path} is a symbolic link" in printed
        assert content(elsewhere) == before
