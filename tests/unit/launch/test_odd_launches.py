"""What nobody expects of files, workers and disks: a launch has a table and an end all the same."""

import json
import math
import os
import sys
from pathlib import Path

import pytest

from virnucpro import predict
from virnucpro.cli.main import main
from virnucpro.dispatch import standstills
from virnucpro.errors import DeviceError, UsageError
from virnucpro.launch import (
    LauncherOrchestrator,
    LaunchOptions,
    ResourceAllocator,
    balancer,
    process_records,
    run_multi_gpu,
    waiting,
)
from virnucpro.launch.ledger import Ledger
from virnucpro.launch.plain import DEEPEST, plain_result
from virnucpro.launch.progress import read_launch
from virnucpro.launch.results import FileResult, FileStatus
from virnucpro.launch.summary import readable, table
from virnucpro.pipeline.execution import Execution
from virnucpro.runtime.folder_lock import folder_lock

pytestmark = pytest.mark.timeout(60)
QUIET = LaunchOptions(quiet=True)


def rows_of(report):
    header, *rows = report.rows
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows}


# --- results and names


RETURNED = {
    "int_keys": "{1: 2, 'x': 3}",
    "tuple_keys": "{'m': {(1, 2): 3}}",
    "same_keys": "{1: 2, '1': 3}",
    "cycle": "holds_itself",
    "surrogate": "{'text': 'x\\udcff', 'other': '\\ud800'}",
    "tab_key": "{'a\\tb\\nc': 2}",
    "own_names": "{'file': 'other', 'status': 'great', 'error': 'none', 'gpu': 9}",
    "numpy": "{'n': __import__('numpy').int64(5), 'f': __import__('numpy').float32(2.5)}",
    "nan": "{'duration': float('nan'), 'complete': True}",
    "nothing": "None",
}


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2] / "data"))
        patch.setattr(sys.modules["__main__"], "__spec__", None)
        patch.delattr(sys.modules["__main__"], "__file__", raising=False)
        folder, out = tmp_path_factory.mktemp("in"), tmp_path_factory.mktemp("out")
        for name, source in RETURNED.items():
            (folder / name).write_text(source)
        Path(os.fsdecode(bytes(folder) + b"/caf\xe9")).write_text("{'x': 1}")
        launcher = LauncherOrchestrator()
        report = launcher.launch(folder, out, "cpu:2", "*", "launch_workers:Returns", options=QUIET)
        yield launcher, report, out


def test_an_odd_result_costs_its_own_file_at_most(odd):
    _, report, out = odd
    rows = rows_of(report)
    failed = {name: row["error"] for name, row in rows.items() if row["status"] == "failed"}
    assert set(failed) == {"tuple_keys", "same_keys", "cycle"}
    assert "the key (1, 2) is no text" in failed["tuple_keys"]
    assert "two of its keys are '1'" in failed["same_keys"]
    assert "holds itself" in failed["cycle"]
    assert (rows["int_keys"]["1"], rows["int_keys"]["x"]) == ("2", "3")
    assert rows["tab_key"]["a b c"] == "2"
    assert (rows["numpy"]["n"], rows["numpy"]["f"]) == ("5", "2.5")
    assert rows["own_names"]["result.file"] == "other"
    assert rows["own_names"]["result.status"] == "great"
    assert rows["own_names"]["status"] == "done"
    assert report.exit_code == 2
    lines = (out / "launch.tsv").read_bytes().splitlines()
    assert len(lines) == 1 + len(RETURNED) + 1
    assert len({line.count(b"\t") for line in lines}) == 1
    content = json.loads((out / "launch.json").read_text("ascii"), parse_constant=pytest.fail)
    assert len(content["files"]) == len(lines) - 1


def test_a_name_that_is_no_utf8_keeps_its_bytes_and_can_be_shown(odd):
    _, report, out = odd
    assert b"caf\xe9\t" in (out / "launch.tsv").read_bytes()
    assert readable([["file"], ["\x1b[31mred"]]) == [["file"], ["\\x1b[31mred"]]
    for row in readable(report.rows):
        "\t".join(row).encode()
    read_launch(out).as_text().encode()


def test_a_duration_that_is_no_number_has_no_real_time_factor(odd):
    assert odd[0].load_balancer.get_overall_rtf() == 0.0


def test_columns_never_share_a_name():
    fields = {"file": 1, "result.file": 2, "a b": 3, "a\tb": 4}
    header = table([FileResult("in/a", FileStatus.DONE, result=fields)], Path("in"))[0]
    assert len(set(header)) == len(header) == 10
    assert not any("\t" in name for name in header)


def test_plain_data_is_left_as_it_is():
    data = {"n": 1, "f": 0.5, "b": True, "s": "x", "none": None, "l": [1, {"k": "v"}]}
    assert plain_result(data) == data
    assert plain_result((1, {2})) == {"result": [1, [2]]}
    assert plain_result({"p": Path("a"), "inf": math.inf}) == {"p": "a", "inf": "inf"}
    deep: list[object] = []
    for _ in range(DEEPEST):
        deep = [deep]
    with pytest.raises(ValueError, match="nested deeper"):
        plain_result(deep)


# --- workers that hang


def test_one_that_never_sets_up_keeps_nobody_waiting(workers, files, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(balancer, "SILENCE_S", 0.1)
    monkeypatch.setattr(waiting, "_FIRST_AT_THE_END_S", 0.2)
    code = run_multi_gpu(
        files(a="{}", b="{}", c="{}"),
        tmp_path / "out",
        "cpu:2",
        worker=workers.HangsInSetup,
        options=LaunchOptions(start_timeout=2.5),
    )
    told = capsys.readouterr().err
    assert code == 0
    assert "worker 1: set-up failed: worker 1 was ended: it did not set up within 2.5 s" in told
    assert "launch.logs/worker-1.log" in told
    assert "waiting for 2 workers to put away" in told
    assert "3 files: 3 done" in told


def test_one_that_gets_no_further_within_a_file_is_ended(
    workers, files, tmp_path, capsys, monkeypatch
):
    """And replaced; one that gets on, however slowly, is let be."""
    monkeypatch.setattr(standstills, "STACKS_GRACE_S", 0.3)
    folder = files(done="ok", hangs="sleep 60", slow="slowly 12")
    command = ["launch", "--input-dir", str(folder), "-o", str(tmp_path / "out"), "--gpus", "cpu:2"]
    command += ["--worker", "launch_workers:Obedient", "--progress-timeout", "0.5"]
    assert main([*command, "--max-attempts", "1"]) == 2
    assert "3 files: 2 done, 1 failed" in capsys.readouterr().err
    content = json.loads((tmp_path / "out" / "launch.json").read_text())
    rows = {Path(one["file"]).stem: one for one in content["files"]}
    assert {name: (row["status"], row["attempts"]) for name, row in rows.items()} == {
        "done": ("done", 1),
        "hangs": ("failed", 1),
        "slow": ("done", 1),
    }
    assert "was ended: it made no progress within 0.5 s" in rows["hangs"]["error"]
    logs = "".join(log.read_text() for log in (tmp_path / "out" / "launch.logs").iterdir())
    assert "in sleep" in logs


def test_predict_is_held_to_its_own_deadline():
    assert predict.Worker.progress_timeout == Execution(Path()).deadlines.progress == 600.0


def test_how_workers_put_away_is_told(workers, files, tmp_path, capsys):
    launcher = LauncherOrchestrator()
    launcher.launch(
        files(a="{}"), tmp_path / "out", "cpu", worker=workers.PutsAway, seconds=0.1, options=QUIET
    )
    assert "clean-up failed: OSError: the door is jammed" in capsys.readouterr().err
    content = json.loads((tmp_path / "out" / "launch.json").read_text())
    assert any("jammed" in trouble for trouble in content["troubles"])
    assert content["exit_code"] == 0


def test_what_is_waited_for_is_told_ever_more_seldom():
    busy = {"status": "processing", "current_task": "in/a.fa"}
    starting = {"status": "initializing", "current_task": None}
    idle = {"status": "idle", "current_task": None}
    told = waiting.waiting_for({0: busy, 1: starting, 2: idle}, files_left=True)
    assert told == "waiting for worker 0 at a.fa, worker 1 to set up"
    ended = {**idle, "status": "finished"}
    told = waiting.waiting_for({0: ended, 1: idle}, files_left=False)
    assert told == "waiting for 1 workers to put away"
    patience = waiting.Patience()
    times = [at for at in range(2, 100, 2) if patience.is_over(at, files_left=True)]
    assert times == [10, 20, 40, 80]
    assert [at for at in (2, 4, 6, 8) if patience.is_over(at, files_left=False)] == [2, 4, 8]


# --- the table while it goes on


def test_the_table_is_of_this_launch_from_the_start(tmp_path):
    files = [tmp_path / name for name in ("a", "b", "c")]
    counts = balancer.LoadBalancer([0])
    ledger = Ledger(tmp_path, tmp_path, files, {"worker": "w"}, counts)
    (tmp_path / "launch.json").write_text("of an earlier one")
    ledger.begin()
    assert read_launch(tmp_path).as_text() == "launch, stopped: 3 files: 3 left"
    with folder_lock(tmp_path / "launch.lock", ""):
        assert read_launch(tmp_path).state == "running"
    for name in ("a", "b"):
        counts.results.append(FileResult(str(tmp_path / name), FileStatus.DONE, 0, 1.0, 1))
        ledger.update()
    assert read_launch(tmp_path).files == {"done": 1, "left": 2}  # not twice within a second
    assert len((tmp_path / "launch.tsv").read_text().splitlines()) == 4
    counts.results.append(FileResult(str(tmp_path / "c"), FileStatus.FAILED, error="no luck"))
    assert ledger.end().exit_code == 2
    progress = read_launch(tmp_path)
    assert (progress.state, progress.files) == ("incomplete", {"done": 2, "failed": 1})
    assert progress.failures == (f"{tmp_path / 'c'}: failed: no luck",)


def test_status_understands_the_folder_of_a_launch(tmp_path, capsys):
    ledger = Ledger(tmp_path, tmp_path, [tmp_path / "a"], {}, balancer.LoadBalancer([0]))
    ledger.begin()
    assert main(["status", str(tmp_path)]) == 0
    assert "launch, stopped: 1 files: 1 left" in capsys.readouterr().out
    assert main(["status", "--json", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["left"] == 1
    (tmp_path / "launch.json").write_text('{"files": [')
    assert main(["status", str(tmp_path)]) == 64
    assert "damaged" in capsys.readouterr().err


def test_a_table_that_cannot_be_written_hides_nothing(workers, files, tmp_path, capsys):
    code = run_multi_gpu(files(a="spoil", b="ok"), tmp_path / "out", "cpu", worker=workers.Obedient)
    assert code == 2
    told = capsys.readouterr().err
    assert "the table of this launch could not be written" in told
    assert "2 files: 2 done" in told
    with pytest.raises(OSError, match=r"launch\.tsv"):
        LauncherOrchestrator().launch(
            files(a="ok"), tmp_path / "out", "cpu", worker=workers.Obedient
        )


# --- files that are none


def test_nothing_of_the_pattern_is_left_out(workers, files, tmp_path, monkeypatch):
    folder = files(a="{}", sub__b="{}", closed__c="{}")
    (folder / "gone.txt").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.txt")
    (folder / "loop.txt").symlink_to(folder / "loop.txt")
    (folder / "folder.txt").mkdir()
    (folder / "link.txt").symlink_to(folder / "a.txt")
    listed = os.scandir

    def scandir(path):
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    report = LauncherOrchestrator().launch(
        folder, tmp_path / "out", "cpu", "**/*.txt", workers.Returns, options=QUIET
    )
    monkeypatch.undo()
    errors = {name: row["error"] for name, row in rows_of(report).items()}
    assert errors == {
        "a.txt": "NA",
        "closed": "the folder cannot be listed (Permission denied).",
        "gone.txt": "the link leads nowhere.",
        "link.txt": "NA",
        "loop.txt": "the link leads nowhere.",
        "pipe.txt": "neither a file nor a folder.",
        "sub/b.txt": "NA",
    }
    assert report.exit_code == 2


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*", "a.txt .hidden"),
        ("*.txt", "a.txt"),
        ("**/*.txt", "a.txt sub/b.txt sub/deep/c.txt"),
        ("**", "a.txt .hidden sub/b.txt sub/deep/c.txt"),
        ("sub/*", "sub/b.txt"),
        ("*/*/c.*", "sub/deep/c.txt"),
        ("**/deep/**/*", "sub/deep/c.txt"),
        ("[!a]*", ".hidden"),
    ],
)
def test_patterns_are_read_as_a_shells(files, pattern, names):
    folder = files(a="", sub__b="", sub__deep__c="")
    (folder / ".hidden").touch()
    found = ResourceAllocator().discover_files(folder, pattern)
    assert {str(path.relative_to(folder)) for path in found} == set(names.split())
    assert found == sorted(found)


# --- where a worker is


def test_a_worker_may_change_its_folder(workers, files, tmp_path, monkeypatch):
    folder = files(a="{'there': keywords['output_dir'].is_dir(), 'of': str(data)}")
    monkeypatch.chdir(tmp_path)
    report = LauncherOrchestrator().launch(
        Path("in"), "out", "cpu", worker=workers.ChangesFolder, options=QUIET
    )
    assert report.results[0].result == {"there": True, "of": str(folder / "a.txt")}
    assert report.rows[1][0] == "a.txt"


NAMES = "pattern options worker input_dir self devices total_files task_timeout on_error base_seed"


def test_keywords_may_be_called_as_anything(workers, files, tmp_path):
    keywords = {name: name for name in NAMES.split() if name != "self"}
    report = LauncherOrchestrator().launch(
        files(a="keywords"),
        tmp_path / "out",
        "cpu",
        worker=workers.Returns,
        options=QUIET,
        keywords=keywords,
    )
    assert keywords.items() <= report.results[0].result.items()
    done = process_records([1], workers.MadeOf, 1, devices="cpu", keywords={"made": "tuple"})
    assert done == [{"n": 1}]


def test_keywords_on_the_command_line(workers, files, tmp_path, capsys):
    folder = files(a="keywords")
    command = ["launch", "--input-dir", str(folder), "-o", str(tmp_path / "out"), "--gpus", "cpu"]
    command += ["-q", "--worker", "launch_workers:Returns"]
    assert main([*command, "--set", "options=1", "--set", "task_timeout=5"]) == 0
    content = json.loads((tmp_path / "out" / "launch.json").read_text())
    result = content["files"][0]["result"]
    assert (result["options"], result["task_timeout"]) == (1, 5)
    with pytest.raises(SystemExit):
        main([*command, "--set", "gpu_id=3"])
    assert "gpu_id is what every worker is given" in capsys.readouterr().err


def test_a_worker_file_shadows_nothing_and_finds_its_neighbours(files, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    for name in ("random", "json", "numbers"):
        (home / f"{name}.py").write_text("raise ZeroDivisionError('shadowed')\n")
    (home / "beside.py").write_text("WORD = 'found'\n")
    (home / "struct.py").write_text(
        "import random, beside\nfrom virnucpro.dispatch import BaseWorker\n"
        "class Worker(BaseWorker):\n"
        "    def setup(self, *_): ...\n"
        "    def process(self, data): return {'word': beside.WORD, 'n': random.randrange(1)}\n"
    )
    report = LauncherOrchestrator().launch(
        files(a=""), tmp_path / "out", "cpu", worker=str(home / "struct.py"), options=QUIET
    )
    assert report.results[0].result == {"word": "found", "n": 0}
    assert json.loads((tmp_path / "out" / "launch.json").read_text())["worker"] == (
        f"{home / 'struct.py'}:Worker"
    )


# --- errors that fit


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpus": "0"}, "--gpus 0: there is no GPU"),
        ({"gpus": "cpu:0"}, "--gpus cpu:0"),
        ({"gpus": None}, "None are no GPUs"),
        ({"gpus": 2}, "2 are no GPUs"),
        ({"gpus": [0, "cpu"]}, "are no GPUs"),
        ({"output_dir": "in"}, "or holds it"),
        ({"output_dir": "."}, "or holds it"),
        ({"pattern": "a**b"}, "'**' stands for folders"),
        ({"worker": dict}, "is no worker"),
        ({"worker": "syntax.py"}, "SyntaxError"),
        ({"worker": "raises.py"}, "ZeroDivisionError"),
    ],
    ids=str,
)
def test_what_is_wrong_is_told_in_a_line(
    workers, files, tmp_path, monkeypatch, capsys, change, said
):
    files(a="ok")
    (tmp_path / "syntax.py").write_text("class Worker(:\n")
    (tmp_path / "raises.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("virnucpro.runtime.devices.list_gpus", list)
    given = {"input_dir": "in", "output_dir": "out", "gpus": "cpu", "worker": workers.Obedient}
    assert LauncherOrchestrator().run(**(given | change)) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# --- records


@pytest.mark.parametrize("records", [["a", "b", "c"], [("a", 1)], [{"k": 1}, 5]])
def test_records_of_any_kind_are_never_dropped(workers, records):
    made = process_records(iter(records), workers.MadeOf, 1, 2, devices="cpu:2", made="fails")
    assert len(made) == len(records)
    for record, one in zip(records, made, strict=True):
        assert "no luck" in one["_error"]
        assert one.get("_record", {"k": one.get("k")}) == record


def test_what_a_worker_returns_must_be_a_mapping_for_each_record(workers):
    records = [{"n": 1}, {"n": 2}]
    made = process_records(records, workers.MadeOf, 1, devices="cpu", made="nones")
    assert [one["n"] for one in made] == [1, 2]
    assert all("list of 2 dicts" in one["_error"] for one in made)
    assert process_records(records, workers.MadeOf, 1, devices="cpu", made="tuple") == [
        {"n": one} for one in records
    ]


@pytest.mark.parametrize("devices", [["cpu"], "cpu:1"])
def test_fewer_devices_than_workers(workers, devices):
    with pytest.raises(DeviceError, match="2 workers were asked for"):
        process_records([1, 2], workers.MadeOf, 2, devices=devices, made="tuple")


def test_a_damaged_table_is_an_error_of_use(tmp_path):
    (tmp_path / "launch.json").write_text("{}")
    with pytest.raises(UsageError, match="damaged"):
        read_launch(tmp_path)
