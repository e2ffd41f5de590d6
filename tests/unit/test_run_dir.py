from pathlib import Path

import pytest

from virnucpro.run_dir import RunDirectory


@pytest.fixture
def run(tmp_path):
    run = RunDirectory(tmp_path)
    for path in (run.segment(0, 7), run.segment(3, 1_234_567), run.launch(1), run.log(0)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    for path in (run.run_json, run.lock, run.predictions):
        path.write_bytes(b"x")
    return run


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_segments_are_found_by_their_names(run):
    (run.shard(0) / "unit-000009.h5.17-abcdef12.tmp").touch()
    (run.shard(0) / "unit-9.h5").touch()
    (run.shards / "notes.txt").touch()
    assert run.segments() == [(7, run.segment(0, 7)), (1_234_567, run.segment(3, 1_234_567))]


def test_entries_exclude_the_lock_and_unfinished_files(tmp_path):
    run = RunDirectory(tmp_path / "run")
    assert run.entries() == []
    for name in ("index.99-abcdef12.tmp", "index.next.99-abcdef12.tmp", "index.next"):
        (run.machine / name).mkdir(parents=True)
    for name in ("run/run.lock", "run/run.json.99-abcdef12.tmp", "report.html.99-abcdef12.tmp"):
        (run.root / name).touch()
    assert run.entries() == []
    others = ["index", "thesis.tmp", "thesis.txt", "thesis.txt.99-abcdef12.tmp", "tracks"]
    for name in others:
        (run.root / name).touch()
    assert run.entries() == others
    (run.machine / "thesis.txt").touch()
    assert run.entries() == sorted([*others, "run"])


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("run/run.json", True),
        ("embeddings.h5", True),
        ("run/run.lock", True),
        ("run/index/x", True),
        ("run/shards/rank-0000/x", True),
        ("link/run/logs/x", True),
        ("tracks/x", True),
        ("run.json", False),
        ("index/x", False),
        ("thesis.h5", False),
        ("thesis/run.json", False),
        ("../run.json", False),
    ],
)
def test_names_of_the_run_are_recognised(name, own, run, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    assert run.owns(tmp_path / name) == own


def test_many_paths_of_one_folder_need_one_look_at_the_folder(run, tmp_path, monkeypatch):
    looks, resolve = [], Path.resolve
    monkeypatch.setattr(Path, "resolve", lambda path: looks.append(path) or resolve(path))
    numbers = []
    for count in (1, 1000):
        assert run.first_owned(tmp_path / f"{n}.fa" for n in range(count)) is None
        numbers.append(len(looks))
        looks.clear()
    assert numbers[0] == numbers[1]


def test_clear_keeps_the_lock_and_foreign_files(run):
    foreign = ["thesis.txt", "tracks/a.bed", "run/a", "run/logs/a.log", "run/shards/a.h5"]
    run.index.mkdir()
    run.tracks.mkdir()
    run.genes.touch()
    (run.index / "columns.bin").touch()
    for name in foreign:
        (run.root / name).touch()
    (run.machine / "index.99-abcdef12.tmp").mkdir()
    run.clear()
    assert names(run.root) == sorted(["run/run.lock", *foreign])


def test_only_unfinished_files_are_removed(run):
    before = names(run.root)
    (run.shard(0) / "unit-000009.h5.17-abcdef12.tmp").touch()
    (run.launches / "0002.json.17-abcdef12.tmp").touch()
    run.tracks.mkdir()
    (run.tracks / "genes.gff3.99-abcdef12.tmp").touch()
    (run.machine / "index.99-abcdef12.tmp").mkdir()
    (run.machine / "index.99-abcdef12.tmp" / "bases.npy").touch()
    run.remove_unfinished()
    assert names(run.root) == before


def test_a_link_is_removed_and_not_followed(run, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "kept.txt").touch()
    run.index.symlink_to(elsewhere, target_is_directory=True)
    run.clear()
    assert not run.index.is_symlink()
    assert names(elsewhere) == ["kept.txt"]
