"""Published bundles over HTTP, from a local server with faults."""

import errno
import importlib
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from cases import slow
from esm_models import fair_esms_own, fair_esms_vectors
from programs import wait_until

from virnucpro.bundles import published
from virnucpro.bundles.bundle import save_bundle
from virnucpro.bundles.download import Patience
from virnucpro.bundles.fetch import Listener, fetch_bundle
from virnucpro.bundles.published import Recipe
from virnucpro.cli.main import main
from virnucpro.encoders.registry import load_encoder, open_spec
from virnucpro.errors import BundleError, RunError
from virnucpro.sequences.index import SequenceIndex

pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("one_process")]

SHORT_TIMEOUTS = Patience(attempts=3, first_wait=0.0, longest_wait=0.05, silence=0.3)
VIEWS = ["nucleotide", "protein"]
DATA = str(Path(__file__).parents[1] / "data")


@pytest.fixture
def server(published_files, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(DATA)
    faulty_server = importlib.import_module("faulty_server")
    folder = tmp_path / "served"
    folder.mkdir()
    for path in published_files.iterdir():
        (folder / path.name).hardlink_to(path)
    for home in published.HOMES.values():
        monkeypatch.delenv(home.mirror_variable, raising=False)
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with faulty_server.FaultyServer(folder) as running:
        for home in published.HOMES.values():
            monkeypatch.setenv(home.mirror_variable, running.url)
        yield running


@pytest.fixture
def alone(recipe):
    """A bundle of one encoder of one file."""
    return Recipe("esm2_tiny", "stand-in", recipe.encoders[1:], None, 500)


@pytest.fixture
def fetch(recipe, data, server):
    """Fetch with short timeouts; collect the stages."""
    stages = []

    def run(**options):
        listener = Listener(stages.append, lambda *_: None)
        return fetch_bundle(
            options.pop("recipe", recipe), data, listener, patience=SHORT_TIMEOUTS, **options
        )

    run.stages = stages
    return run


def entries(data):
    return sorted(path.name for path in data.bundles.iterdir())


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_pipe_or_a_link_in_the_place_of_a_download_is_refused(kind, alone, data, fetch, tmp_path):
    """A pipe would be opened for ever; the target of a link would be overwritten."""
    data.downloads.mkdir(parents=True)
    path = data.downloads / f"{alone.files[0].name}.part"
    target = tmp_path / "mine"
    target.write_text("of years")
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(target)
    with pytest.raises(RunError, match=r"\.part is (not a regular file|a symbolic link)"):
        fetch(recipe=alone)
    assert target.read_text() == "of years"


@pytest.mark.parametrize("isolated", [False, slow(True)])
def test_a_fetched_bundle_predicts(
    isolated, request, recipe, data, server, tmp_path, small_fasta, tables, called
):
    """The command reads published files in processes of their own."""
    if not isolated:
        request.getfixturevalue("reading_here")
    few = tmp_path / "few.fa"
    few.write_text("\n".join(small_fasta.read_text().splitlines()[:12]) + "\n")
    assert main(["bundle", "fetch", "virnucpro-500"]) == 0
    assert entries(data) == ["virnucpro-500"]
    assert list(data.downloads.iterdir()) == []
    assert main(["bundle", "verify", "virnucpro-500"]) == 0
    assert "virnucpro-500\t1\twindow 500, published" in called("bundle", "list", code=0).stdout
    run = tmp_path / "run"
    arguments = ["--bundle", "virnucpro-500", "--devices", "cpu:1", "-q"]
    assert main(["predict", str(few), "-o", str(run), *arguments]) == 0
    rows = tables(run / "predictions.tsv")
    assert [row["status"] for row in rows] == ["scored"] * 6
    windows = tables(run / "tracks" / "windows.tsv")
    assert max(int(row["end"]) - int(row["start"]) + 1 for row in windows) == 500
    first = (run / "prediction_results.txt").read_text().splitlines()[1]
    assert first.startswith("open_0_chunk_1")


def test_vectors_and_scores_equal_those_of_the_published_modules(
    fetch, stand_ins, published_files, tmp_path, small_fasta, tables
):
    import torch

    bundle = fetch()
    assert (bundle.window, bundle.tiling, bundle.genetic_code) == (500, "published", 1)
    assert [spec.view for spec in bundle.encoders] == VIEWS
    fasta, run = tmp_path / "few.fa", tmp_path / "run"
    texts = [bases for bases in small_fasta.read_text().splitlines()[1::2] if len(bases) > 1000]
    records = {"long": texts[0][:1000], "short": texts[1][:480], "tiny": texts[1][480:520]}
    fasta.write_text("".join(f">{name}\n{bases}\n" for name, bases in records.items()))
    arguments = ["--bundle", "virnucpro-500", "--devices", "cpu:1", "--precision", "fp32", "-q"]
    assert main(["predict", str(fasta), "-o", str(run), "--embeddings", "fp32", *arguments]) == 0
    index = SequenceIndex.open(run / "run" / "index")
    names = index.item_names(np.arange(index.n_items))
    stretches, peptides = (index.sequences(index.item_row, view) for view in VIEWS)
    encoder = load_encoder(open_spec(published_files))
    nucleotide = encoder.vectors(encoder.tokenise(stretches))
    protein = fair_esms_vectors(fair_esms_own(published_files / "esm2_tiny.pt"), peptides)
    expected = torch.cat([torch.from_numpy(nucleotide), protein], dim=1)
    with h5py.File(run / "embeddings.h5") as file:
        assert file["sequence_ids"].asstr()[:].tolist() == names
        found = torch.from_numpy(file["embeddings"][:])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    with torch.no_grad():
        classifier = stand_ins.write_classifier(tmp_path / "again.pth")
        scores = torch.softmax(classifier(expected), dim=1)
    rows = tables(run / "prediction_results.txt")
    assert [row["Sequence_ID"] for row in rows] == names
    written = torch.tensor([[float(row["score1"]), float(row["score2"])] for row in rows])
    torch.testing.assert_close(written, scores, rtol=0, atol=1e-5)


TRANSIENT = [
    "ends_early",
    "stalls",
    "closes_connection",
    "malformed_answer",
    "chunked_ends_early",
    503,
    429,
]


@pytest.mark.parametrize(
    "faults",
    [
        *([fault] * 2 for fault in TRANSIENT),
        *(["whole", fault] for fault in ("no_length", "chunked", "slow")),
    ],
    ids=str,
)
def test_transient_faults_are_retried_and_unusual_answers_accepted(fetch, alone, server, faults):
    server.faults["esm2_tiny.pt"] = [*faults]
    bundle = fetch(recipe=alone)
    assert (bundle.name, bundle.head) == (alone.name, None)
    assert server.faults["esm2_tiny.pt"] == []


def flipped(content):
    return content[:-1] + bytes([content[-1] ^ 1])


LASTING = [
    ("ends_early", r"ended after [\d,]+ of [\d,]+ bytes\. All 3 attempts failed"),
    ("stalls", r"TimeoutError.*\. All 3 attempts failed"),
    ("chunked_ends_early", r"IncompleteRead.*\. All 3 attempts failed"),
    (503, r"the server answered 503 Service Unavailable\. All 3 attempts failed"),
    ("length_too_large", r"ended after [\d,]+ of [\d,]+ bytes"),
    ("length_too_small", "is not the published file"),
    ("no_length_ends_early", "is not the published file"),
    (lambda content: bytes(len(content)), "is not the published file"),
    (lambda _: b"<html>please log in</html>", "looks like a web page"),
    (flipped, "is not the published file"),
    (404, "the server answered 404 Not Found"),
    (403, "the server answered 403 Forbidden"),
    (407, "the server answered 407 Proxy Authentication Required"),
    (416, "the server answered 416"),
    ("redirects_endlessly", "the server answered 302 .*infinite loop"),
    ("redirects_to_a_file", "the server answered 302 .*file:///etc/hostname"),
    ("redirects_to_malformed_address", "the address is malformed"),
    ("endless", "is not the published file"),
    ("length_far_too_large", r"ended after [\d,]+ of [\d,]+ bytes"),
]


@pytest.mark.parametrize(
    ("fault", "message"), LASTING, ids=lambda one: getattr(one, "__name__", str(one))[:24]
)
def test_after_a_lasting_fault_a_rerun_succeeds(fetch, alone, server, data, fault, message):
    server.always["esm2_tiny.pt"] = fault
    with pytest.raises(BundleError, match=message) as caught:
        fetch(recipe=alone)
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert f"{server.url}/esm2_tiny.pt" in text
    assert "VIRNUCPRO_MIRROR_ESM2" in text
    assert "\n" not in str(caught.value)
    assert entries(data) == []
    server.always.clear()
    assert fetch(recipe=alone).name == alone.name


def test_a_rerun_resumes_an_interrupted_fetch(fetch, server, data):
    server.always["esm2_tiny.pt"] = "ends_early"
    with pytest.raises(BundleError, match=r"bytes are kept\. Rerun the command later to resume"):
        fetch()
    kept = (data.downloads / "esm2_tiny.pt.part").stat().st_size
    server.always.clear()
    server.requests.clear()
    fetch()
    assert server.asked("esm2_tiny.pt") == [None, f"bytes={kept}-"]
    assert server.asked("pytorch_model.bin") == []
    assert list(data.downloads.iterdir()) == []


@pytest.mark.parametrize("fault", ["ignores_ranges", "wrong_range", 416, "redirects"])
def test_an_unusual_answer_to_a_range_does_not_prevent_the_fetch(fetch, alone, server, fault):
    server.faults["esm2_tiny.pt"] = ["whole", "ends_early", fault]
    assert fetch(recipe=alone).name == alone.name
    assert server.asked("esm2_tiny.pt")[2] is not None


@pytest.mark.parametrize(
    ("name", "change", "asked"),
    [
        ("esm2_tiny.pt.part", lambda _: b"something else", [None, "bytes=14-", None]),
        ("esm2_tiny.pt.part", lambda _: b"x" * 10**6, [None, "bytes=1000000-", None]),
        ("esm2_tiny.pt.part", bytes, [None, "bytes=ALL-"]),
        ("esm2_tiny.pt", bytes, []),
        ("esm2_tiny.pt", flipped, [None]),
    ],
)
def test_earlier_downloads_are_verified_and_replaced_if_wrong(
    fetch, alone, server, data, published_files, name, change, asked
):
    content = (published_files / "esm2_tiny.pt").read_bytes()
    data.downloads.mkdir(parents=True)
    (data.downloads / name).write_bytes(change(content))
    assert fetch(recipe=alone).name == alone.name
    requests = [
        one and one.replace(str(len(content)), "ALL") for one in server.asked("esm2_tiny.pt")
    ]
    assert requests == asked
    assert list(data.downloads.iterdir()) == []


def test_a_file_that_is_wrong_again_is_an_error(fetch, alone, server, data):
    data.downloads.mkdir(parents=True)
    (data.downloads / "esm2_tiny.pt.part").write_bytes(b"something else")
    server.always["esm2_tiny.pt"] = "chunked_wrong_content"
    with pytest.raises(BundleError, match="is not the published file"):
        fetch(recipe=alone)
    assert len(server.asked("esm2_tiny.pt")) <= 3
    assert list(data.downloads.iterdir()) == []


def test_a_missing_file_is_an_error_before_any_download(fetch, server, data):
    server.always["500_model.pth"] = 404
    with pytest.raises(BundleError, match=r"500_model\.pth: the server answered 404"):
        fetch()
    assert list(data.downloads.iterdir()) == []


def test_a_wrong_file_in_one_piece_is_not_downloaded_twice(fetch, alone, server):
    server.always["esm2_tiny.pt"] = "chunked_wrong_content"
    with pytest.raises(BundleError, match="is not the published file"):
        fetch(recipe=alone)
    assert server.asked("esm2_tiny.pt") == [None, None]


def test_a_full_disk_is_an_error_before_any_download(fetch, data, server, monkeypatch):
    import shutil

    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=16_100_000))
    with pytest.raises(
        BundleError, match=r"GB of disk space are needed, but only 0\.02 GB are free"
    ):
        fetch()
    assert list(data.downloads.iterdir()) == []


def test_a_disk_that_becomes_full_is_a_clear_error(fetch, server, data, monkeypatch):
    import virnucpro.bundles.download as module

    def full(*_arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(data.downloads / "x.part"))

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "fsync", full)
        with pytest.raises(BundleError, match=r"No space left on device\. Check the disk"):
            fetch()
    assert fetch().name == "virnucpro-500"


def test_a_second_fetch_at_the_same_time_is_refused(fetch, data, server):
    with data.lock(), pytest.raises(BundleError, match=rf"pid {os.getpid()}\) uses this folder"):
        fetch()
    assert fetch().name == "virnucpro-500"


def test_an_installed_bundle_is_kept_and_a_damaged_one_replaced(fetch, server, data):
    bundle = fetch()
    server.requests.clear()
    assert fetch().fingerprint == bundle.fingerprint
    assert server.requests == []
    weights = data.bundle(bundle.name) / "protein.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert fetch().fingerprint == bundle.fingerprint
    assert server.asked("esm2_tiny.pt") == [None, None]
    assert entries(data) == [bundle.name]


def test_another_bundle_of_the_name_is_refused(fetch, data):
    bundle = fetch()
    save_bundle(replace(bundle, provenance={}))
    with pytest.raises(BundleError, match=rf"{bundle.path}: .* other files than the published"):
        fetch()
    assert entries(data) == [bundle.name]


def test_a_proxy_of_the_environment_is_used(fetch, server, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("VIRNUCPRO_MIRROR_ESM2", "http://weights.invalid/models/")
    assert fetch().name == "virnucpro-500"
    assert ("GET", "http://weights.invalid/models/esm2_tiny.pt", None) in server.requests


def test_a_server_that_cannot_be_reached_is_a_clear_error(fetch, server, monkeypatch):
    monkeypatch.setenv("VIRNUCPRO_MIRROR_HUB", "http://127.0.0.1:1")
    with pytest.raises(BundleError, match=r"127\.0\.0\.1:1/.*no connection.*--from DIR"):
        fetch()


def test_fetch_from_a_folder_needs_no_network(fetch, server, published_files):
    assert fetch(source=published_files).name == "virnucpro-500"
    assert server.requests == []
    assert (published_files / "esm2_tiny.pt").exists()


def test_an_encoder_fetched_alone_can_embed(fetch, alone):
    from virnucpro.run.embed_job import embed_job

    bundle = fetch(recipe=alone)
    job = embed_job(["x.fa"], encoder="esm2_tiny/protein")
    assert (job.encoders, job.head) == (bundle.encoders, None)


def test_missing_files_of_a_folder_are_listed_with_addresses(fetch, server, tmp_path):
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "config.json").write_text("{}")
    with pytest.raises(BundleError, match=r"4 of the 5 files are missing") as caught:
        fetch(source=tmp_path / "some")
    assert f"esm2_tiny.pt from {server.url}/esm2_tiny.pt" in str(caught.value)


def test_a_folder_with_a_wrong_file_is_not_changed(fetch, published_files, tmp_path):
    folder = tmp_path / "some"
    folder.mkdir()
    for path in published_files.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "config.json").write_text("{}")
    with pytest.raises(BundleError, match=r"config\.json: is not the published file"):
        fetch(source=folder)
    assert (folder / "config.json").exists()


POISON = """
import pathlib, pickle, sys, zipfile
class Poison:
    def __reduce__(self):
        return (pathlib.Path(sys.argv[2]).touch, ())
class Direct:
    def __reduce__(self):
        import os
        return (os.system, ("touch " + sys.argv[2],))
with zipfile.ZipFile(sys.argv[1], "w") as archive:
    archive.writestr("archive/data.pkl", pickle.dumps(Direct(), 2))
    archive.writestr("archive/version", "3")
    archive.writestr("archive/byteorder", "little")
"""


@pytest.mark.parametrize("name", ["esm2_tiny.pt", "pytorch_model.bin", "500_model.pth"])
def test_a_poisoned_pickle_does_not_run(fetch, server, data, stand_ins, tmp_path, name):
    victim = tmp_path / "victim"
    poisoned = server.folder / name
    poisoned.unlink()
    subprocess.run([sys.executable, "-c", POISON, poisoned, victim], check=True)
    poisoned_recipe = stand_ins.recipe_of_files(server.folder)
    with pytest.raises(BundleError, match=rf"{name}: .*posix\.system") as caught:
        fetch(recipe=poisoned_recipe)
    assert "weights_only" not in str(caught.value), "the message must not contain torch's advice"
    assert not victim.exists()
    assert entries(data) == []
    import torch

    with pytest.raises(AttributeError):
        torch.load(poisoned, weights_only=False).eval()
    assert victim.exists(), "without the guard, the pickle must run its code"


@pytest.mark.parametrize(
    ("signum", "code"),
    [
        (signal.SIGTERM, 143),
        slow(signal.SIGINT, 130),
        slow(signal.SIGKILL, -9),
    ],
)
def test_a_stopped_fetch_installs_nothing_and_can_be_resumed(
    recipe, data, server, tmp_path, reading_here, signum, code
):
    script = (
        "import pathlib, pickle, sys\n"
        "from virnucpro.bundles import published\n"
        "from virnucpro.cli.main import main\n"
        "made = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())\n"
        "published._RECIPES[made.name] = made\n"
        "sys.exit(main(['bundle', 'fetch', made.name]))\n"
    )
    (tmp_path / "recipe").write_bytes(pickle.dumps(recipe))
    server.always["pytorch_model.bin"] = "stalls"
    process = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path / "recipe"], stderr=subprocess.PIPE
    )
    part = data.downloads / "pytorch_model.bin.part"
    wait_until(lambda: part.exists() and part.stat().st_size, process, 120)
    process.send_signal(signum)
    _, output = process.communicate()
    assert process.returncode == code
    assert b"Traceback" not in output
    assert (b"Downloads are kept. Rerun the command to resume" in output) == (code > 0)
    assert entries(data) == []
    server.always.clear()
    server.requests.clear()
    assert main(["bundle", "fetch", "virnucpro-500", "-q"]) == 0
    assert entries(data) == ["virnucpro-500"]
    assert server.asked("config.json") == []
    assert server.asked("pytorch_model.bin")[1] is not None


def test_the_command_reports_errors(recipe, data, server, capsys, called):
    server.always["esm2_tiny.pt"] = 403
    output = called("bundle", "fetch", "virnucpro-500", code=1).stderr
    assert (
        f"virnucpro: error: {server.url}/esm2_tiny.pt: the server answered 403 Forbidden" in output
    )
    assert "--resume" not in output
    assert main(["bundle", "fetch", "no-such-bundle"]) == 64
    assert "Choose one of virnucpro-500" in capsys.readouterr().err
    assert main(["predict", "x.fa", "-o", "out", "--bundle", "virnucpro-500"]) == 64
    assert "virnucpro bundle fetch virnucpro-500" in capsys.readouterr().err
