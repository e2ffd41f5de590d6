"""Encoders of other packages: the example of docs/own-encoder.md, and packages with errors."""

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from cases import slow
from own_packages import EXAMPLE, install_class, install_example
from programs import segments_in, stuck_after, wait_until

import virnucpro
from virnucpro.cli.main import main
from virnucpro.encoders.device import try_batch
from virnucpro.encoders.registry import load_encoder
from virnucpro.errors import UsageError
from virnucpro.run.embed_job import find_encoder

pytestmark = pytest.mark.timeout(240)
NAME = "residue-properties"


@pytest.fixture(scope="module")
def fasta(tmp_path_factory):
    """200 proteins: 7 units."""
    dice = random.Random(11)
    path = tmp_path_factory.mktemp("input") / "proteins.faa"
    letters = ["".join(dice.choices("ACDEFGHIKLMNPQRSTVWYX", k=40 + n)) for n in range(200)]
    path.write_text("".join(f">p{n}\n{one}\n" for n, one in enumerate(letters)))
    return path


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The folder in which the example is installed."""
    return install_example(tmp_path_factory.mktemp("site") / "packages")


@pytest.fixture
def installed(example, importing):
    importing(example)


@pytest.fixture
def importing(monkeypatch):
    """Return a function that puts folders on the import path, also of new processes."""

    def prepend(*folders):
        for folder in folders:
            monkeypatch.syspath_prepend(str(folder))
        paths = [*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))

    yield prepend
    for name in ("residue_properties", "odd_encoder"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def wanted(fasta):
    """The vectors, computed from the letters alone."""
    rows = []
    for letters in fasta.read_text().split()[1::2]:
        counts = Counter(letters)
        shares = [counts[one] / len(letters) for one in "ACDEFGHIKLMNPQRSTVWY"]
        rows.append([*shares, np.dot(shares, KYTE_DOOLITTLE)])
    return np.array(rows)


KYTE_DOOLITTLE = [
    *(1.8, 2.5, -3.5, -3.5, 2.8, -0.4, -3.2, 4.5, -3.9, 3.8),
    *(1.9, -3.5, -1.6, -3.5, -4.5, -0.8, -0.7, 4.2, -0.9, -1.3),
]


def embed(fasta, folder, *options, name=NAME):
    words = ["embed", fasta, "-e", name, "-o", folder, "--embeddings", "fp32", "-q", *options]
    return [*map(str, words)]


def vectors_in(folder):
    with h5py.File(folder / "embeddings.h5") as file:
        return file["embeddings"][:]


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_a_killed_run_of_two_ranks_is_resumed(fasta, wanted, tmp_path):
    folder = tmp_path / "run"
    command = [*stuck_after(1, tmp_path / "fired"), *embed(fasta, folder, "--devices", "cpu:2")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as process:
        wait_until(lambda: len(list(folder.glob("run/shards/*/unit-*.h5"))) >= 2, process, 100)
        os.killpg(process.pid, signal.SIGKILL)
    assert not (folder / "embeddings.h5").exists()
    kept = segments_in(folder)
    assert main(embed(fasta, folder, "--devices", "cpu:2", "--resume")) == 0
    assert kept.items() <= segments_in(folder).items()
    assert np.abs(vectors_in(folder) - wanted).max() < 1e-6
    with virnucpro.embed(fasta, NAME) as found:  # in memory, undisturbed
        assert (found.matrix == vectors_in(folder)).all()
    assert main(["verify", str(folder)]) == 0


PAGE = (Path(__file__).parents[2] / "docs" / "own-encoder.md").read_text()
FENCE = re.compile(
    r"^```\w+(?: title=\"own_encoder/([\w.]+)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL
)
BLOCKS = FENCE.findall(PAGE)


@pytest.mark.parametrize("path", sorted(EXAMPLE.glob("*.*")), ids=lambda path: path.name)
def test_the_page_shows_the_files_of_the_example(path):
    assert dict(BLOCKS)[path.name] == path.read_text()


@pytest.mark.scripts
@pytest.mark.usefixtures("installed")
def test_the_commands_of_the_page_compute_one_run_in_two_tasks(
    fasta, tmp_path, monkeypatch, computing_here, capsys
):
    monkeypatch.chdir(tmp_path)
    shutil.copy(fasta, "proteins.faa")
    (commands,) = (text for _, text in BLOCKS if text.startswith("pip install"))
    with computing_here():
        for line in commands.splitlines()[1:]:
            here = ["--devices", "cpu:1"] if "--task" in line else []
            assert main([*line.split()[1:], "-q", *here]) == 0, line
    with virnucpro.embed(fasta, NAME) as found:
        assert (found.matrix.astype("float16") == vectors_in(Path("many"))).all()
    capsys.readouterr()
    exec(dict(BLOCKS)["use.py"], {})
    assert capsys.readouterr().out == "-0.9\n"


def test_a_resume_with_another_version_is_refused_by_name(
    fasta, example, tmp_path, importing, called, computing_here
):
    folder = tmp_path / "run"
    importing(example)
    with computing_here():
        assert main(embed(fasta, folder, "--devices", "cpu:1")) == 0
    importing(install_example(tmp_path / "newer", version="1.1"))
    printed = called(*embed(fasta, folder), "--resume", code=1).stderr
    assert "was residue-properties 1.0" in printed
    assert "is now residue-properties 1.1" in printed


WRONG = {
    "dim = 0": "odd of odd-encoder 0.1: alphabet 'protein', dim, max_tokens, n_weights [0, ",
    "alphabet = 'dna'": "odd of odd-encoder 0.1: alphabet 'dna'",
    "settings = {'k': {3}}": "odd of odd-encoder 0.1: cannot be loaded (TypeError: ",
    "import nothing_here": "odd of odd-encoder 0.1: cannot be loaded (ModuleNotFoundError: ",
    "vectors = None": "odd of odd-encoder 0.1",
    "def vectors(self, batch): return super().vectors(batch)[1:]": (
        "odd of odd-encoder 0.1: vectors() returned float32 array (6, 21), not float32 array (7"
    ),
    "def vectors(self, batch): return super().vectors(batch).astype(float)": (
        "vectors() returned float64 array (7, 21), not float32 array (7, 21)"
    ),
    "def vectors(self, batch): return None": "vectors() returned NoneType, not float32 array",
    "def vectors(self, batch): return batch.letters": "raised by the encoder odd of odd-encoder",
    "def tokenise(self, rows): return []": "tokenise() returned 0 arrays for 7 sequences",
    "def tokenise(self, rows): return rows": "tokenise() returned bytes, not integer array (n,)",
    "def tokenise(self, rows): return [np.zeros(0, int) for _ in rows]": (
        "odd of odd-encoder 0.1: tokenise() returned int64 array (0,), not integer array (n,)"
    ),
    "def load(self, *_): raise OSError('no weights')": "raised by the encoder odd of odd-encoder",
}


SEVEN = {f"p{n}": "MKLV" * (n + 1) for n in range(7)}


@pytest.mark.parametrize("body", WRONG)
def test_an_error_of_a_package_is_one_sentence_with_its_name(body, tmp_path, importing):
    importing(install_class(tmp_path / "site", body))
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the table has the texts
        virnucpro.embed(SEVEN, "odd")
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert WRONG[body] in text


OF_TORCH = """
    n_weights, max_tokens = 1_000, 24
    def load(self, device, precision):
        import torch
        half = precision == "fp16"
        self.one = torch.ones((), device=device, dtype=torch.half if half else torch.float)
    def vectors(self, batch):
        assert max(map(len, batch)) <= 24
        return super().vectors(batch) * self.one.item()
"""


def test_an_encoder_of_torch_gets_its_device_and_precision(tmp_path, importing):
    importing(install_class(tmp_path / "site", OF_TORCH))
    for precision in ("fp32", "fp16"):
        with pytest.warns(UserWarning, match="1 rows are quarantined"):
            found = virnucpro.embed(SEVEN, "odd", precision=precision)
        with found:
            assert found.found.tolist() == [True] * 6 + [False]  # 28 tokens
    loaded = load_encoder(find_encoder("odd").spec)
    assert loaded.plugin.one.dtype == torch.float32
    assert try_batch(loaded, 1_000, 2_000) is None


def test_two_packages_with_one_name_are_refused(tmp_path, importing):
    importing(*(install_class(tmp_path / one, "pass", f"{one}-encoder") for one in ("odd", "even")))
    with pytest.raises(UsageError, match=r"'odd' is in .*: even-encoder 0\.1, odd-encoder 0\.1"):
        virnucpro.embed(SEVEN, "odd")


@pytest.mark.usefixtures("installed")
def test_names_of_installed_encoders_are_listed(capsys, fasta, tmp_path):
    assert main(embed(fasta, tmp_path / "run", name="residues")) == 64
    assert "of another package (residue-properties installed)" in capsys.readouterr().err


HAS_TEN = "any(len(one) == 10 for one in batch)"
KILLS = f"""
    def vectors(self, batch):
        if {HAS_TEN}:
            import os
            os._exit(9)
        return super().vectors(batch)
"""
RAISES = f"""
    def tokenise(self, batch):
        if {HAS_TEN}:
            raise ValueError("ten")
        return super().tokenise(batch)
"""
NOT_A_NUMBER = """
    def vectors(self, batch):
        found = super().vectors(batch)
        found[[len(one) == 10 for one in batch]] = np.nan
        return found
"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (KILLS, "kills_process"),
        slow(RAISES, "ValueError: ten; raised by the encoder odd of odd-encoder 0.1"),
        (NOT_A_NUMBER, "not_finite\t21 of 21 numbers of the odd of odd-encoder 0.1 vector are NaN"),
        ("max_tokens = 9", "too_long\tthe sequence has 10 tokens, more than 9, which is the limit"),
    ],
    ids=["kills", "raises", "NaN", "long"],
)
def test_a_row_that_an_encoder_cannot_encode_is_quarantined(
    body, reason, tmp_path, importing, tables, computing_here
):
    importing(install_class(tmp_path / "site", body))
    fasta, folder = tmp_path / "in.faa", tmp_path / "run"
    rows = {"a": "MKLV", "deadly": "MKLVMKLVWW"}
    fasta.write_text("".join(f">{name}\n{letters}\n" for name, letters in rows.items()))
    in_ranks = body in {KILLS, RAISES}
    with contextlib.nullcontext() if in_ranks else computing_here():
        assert main(embed(fasta, folder, "--devices", "cpu:1", name="odd")) == 2
    (row,) = tables(folder / "quarantine.tsv")
    assert row["seq_name"] == "deadly"
    assert reason in "\t".join(row.values())
    assert np.isfinite(vectors_in(folder)).all(1).tolist() == [True, False]
