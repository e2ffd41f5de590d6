"""Units of a small index through mini's own encoders, with a memory and weights made to fail."""

import math
import random
import re
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest
import torch

from virnucpro.encoders.dnabert_s.encoder import DnabertS
from virnucpro.encoders.memory.memory_needed import PROCESS_BYTES
from virnucpro.encoders.module_encoder import ModuleEncoder
from virnucpro.encoders.sizes import shapes_of
from virnucpro.pipeline.worker import encoder_pass, fallback_precision
from virnucpro.pipeline.worker.poison_isolation import FINISHING, Suspicion, UnitSpan, tokenising
from virnucpro.pipeline.worker.rank_encoder import RankEncoder
from virnucpro.pipeline.worker.row_embedder import RowEmbedder
from virnucpro.pipeline.worker.unit_tokens import UnitTokens
from virnucpro.sequences.index import build_index
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec
from virnucpro.store.schema import RowState
from virnucpro.store.segment import encode_segment

N_ROWS = 24
CLOSE = {"rtol": 0, "atol": 2e-5}


class Watch:
    """Notes what it hears."""

    def __init__(self):
        self.places = []
        self.rows = []

    def at(self, place):
        self.places.append(place)

    def through(self, rows):
        self.rows.append(rows)

    @property
    def batches(self):
        return [place for place in self.places if place.stage >= 0]


@pytest.fixture(scope="module", autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Rows of 20 to 160 residues, every frame of 12 records without a stop."""
    dice = random.Random(5)
    folder = tmp_path_factory.mktemp("index")
    with (folder / "in.fa").open("w") as stream:
        for number in range(12):
            bases = "".join(dice.choices("ACG", weights=[1, 2, 2], k=dice.randint(60, 480)))
            stream.write(f">r{number}\n{bases}\n")
    spec = IndexSpec("frames", Alphabet.NUCLEOTIDE, 500, "even", 11)
    return build_index(folder / "index", [str(folder / "in.fa")], spec)


@pytest.fixture(scope="module")
def task(tmp_path_factory, doubles):
    return doubles.mini_task(tmp_path_factory.mktemp("run"), N_ROWS)


@pytest.fixture(scope="module")
def healthy(task, index):
    return RowEmbedder(task, index).embed(3, 0, N_ROWS, Watch(), Suspicion())


@pytest.fixture
def memory(monkeypatch):
    """Give encoders a memory of so many tokens; returns all attempts as (name, tokens)."""

    def limit(tokens, views=("nucleotide", "protein")):
        attempts = []
        encode = ModuleEncoder.encode

        def limited(self, batch):
            attempts.append((self.name, batch.total))
            if self.view in views and batch.total > tokens:
                raise torch.OutOfMemoryError(
                    "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0"
                )
            return encode(self, batch)

        monkeypatch.setattr(ModuleEncoder, "encode", limited)
        return attempts

    return limit


def embedded(task, index, suspicion=None, learnt=None):
    watch, embedder = Watch(), RowEmbedder(task, index, learnt)
    segment = embedder.embed(3, 0, N_ROWS, watch, suspicion or Suspicion())
    encode_segment(segment)  # refuses a number that is not finite
    return segment, watch, embedder


def same_but_for(rows, segment, healthy):
    kept = np.setdiff1d(np.arange(N_ROWS), list(rows))
    np.testing.assert_allclose(segment.embeddings[kept], healthy.embeddings[kept], **CLOSE)
    np.testing.assert_allclose(segment.scores[kept], healthy.scores[kept], **CLOSE)
    assert sorted(segment.reasons) == sorted(rows)
    assert np.flatnonzero(segment.state == RowState.QUARANTINED).tolist() == sorted(rows)
    for values in (segment.embeddings, segment.scores):
        assert not values[sorted(rows)].any()


def test_a_watch_hears_of_every_row_before_and_after(task, index):
    segment, watch, _ = embedded(task, index)
    stages = list(dict.fromkeys(place.stage for place in watch.places))
    assert stages == [tokenising(0), 0, tokenising(1), 1, FINISHING]
    for stage in stages[:-1]:
        places = [place for place in watch.places if place.stage == stage]
        positions = [p for place in places for p in range(place.first, place.stop)]
        assert positions == list(range(N_ROWS))
    assert {place.unit for place in watch.places} == {3}
    assert watch.rows == sorted(watch.rows)
    assert watch.rows[-1] == N_ROWS
    assert len(watch.rows) == len(watch.batches)
    same_but_for([], segment, segment)


def fed_by(embedder):
    future = Future()
    future.set_result(embedder.feed(3, 0, N_ROWS))
    return future


def test_what_was_fed_gives_the_same_bits_and_is_waited_for_in_its_place(task, index, healthy):
    watch, embedder = Watch(), RowEmbedder(task, index)
    segment = embedder.embed(3, 0, N_ROWS, watch, Suspicion(), fed_by(embedder))
    assert encode_segment(segment) == encode_segment(healthy)
    assert watch.places[0] == UnitSpan(3, tokenising(0), 0, N_ROWS)
    assert list(dict.fromkeys(place.stage for place in watch.places[1:])) == [0, 1, FINISHING]


def test_what_the_feeder_raises_is_raised_where_its_tokens_are_needed(task, index):
    watch, fed = Watch(), Future()
    fed.set_exception(ValueError("planted"))
    with pytest.raises(ValueError, match="planted"):
        RowEmbedder(task, index).embed(3, 0, N_ROWS, watch, Suspicion(), fed)
    assert watch.places == [UnitSpan(3, tokenising(0), 0, N_ROWS)]


@pytest.fixture
def rank_encoder(task):
    return RankEncoder(1, task.encoders[1], "cpu", "fp32", task.batch_tokens, {})


def through_one_encoder(rank_encoder, index, *, ahead):
    watch = Watch()
    ids = rank_encoder.encoder.tokenise(index.sequences(np.arange(N_ROWS), "protein"))
    encoded = rank_encoder.vectors(
        UnitTokens(3, ids), Suspicion(), watch.at, watch.through, shortest=lambda: 3, ahead=ahead
    )
    assert encoded.reasons == {}
    assert encoded.filling.tokens == sum(map(len, ids))
    assert encoded.filling.batches == len(watch.rows)
    return encoded.vectors, watch


def test_batches_launched_ahead_give_the_same_bits(rank_encoder, index):
    plain, _ = through_one_encoder(rank_encoder, index, ahead=False)
    ahead, watch = through_one_encoder(rank_encoder, index, ahead=True)
    assert torch.equal(plain, ahead)
    assert [p for place in watch.places for p in range(place.first, place.stop)] == [*range(N_ROWS)]
    assert sum(watch.rows) == N_ROWS
    assert len(watch.rows) == len(watch.places) > 2


def test_the_next_batch_is_queued_behind_the_copy_that_is_waited_for(
    rank_encoder, index, monkeypatch
):
    """Whoever waits for one batch waits for nothing of the next: the device goes on meanwhile."""
    steps = []
    encode = ModuleEncoder.encode

    def launched(self, batch):
        steps.append("launch")
        return encode(self, batch)

    def fetching(vectors):
        steps.append("copy")
        return lambda: steps.append("wait") or vectors

    monkeypatch.setattr(ModuleEncoder, "encode", launched)
    monkeypatch.setattr(encoder_pass, "fetching", fetching)
    through_one_encoder(rank_encoder, index, ahead=True)
    n_batches = steps.count("launch")
    begin = ["launch", "copy"]
    assert n_batches > 2
    assert steps == [*begin, *[*begin, "wait"] * (n_batches - 1), "wait"]


@pytest.mark.gpu
def test_a_copy_from_a_gpu_is_waited_for_alone(gpu):
    vectors = torch.arange(12, dtype=torch.float32, device=gpu).view(3, 4)
    fetch = encoder_pass.fetching(vectors)
    torch.cuda._sleep(2_000_000_000)  # cycles: about a second of the queue behind it
    assert torch.equal(fetch(), torch.arange(12, dtype=torch.float32).view(3, 4))
    assert not torch.cuda.current_stream().query()
    torch.cuda.synchronize()


def test_batches_launched_ahead_that_do_not_fit_are_split(rank_encoder, index, monkeypatch):
    plain, _ = through_one_encoder(rank_encoder, index, ahead=False)
    encode = ModuleEncoder.encode

    def limited(self, batch):
        if batch.total > 200:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0")
        return encode(self, batch)

    monkeypatch.setattr(ModuleEncoder, "encode", limited)
    split, watch = through_one_encoder(rank_encoder, index, ahead=True)
    torch.testing.assert_close(split, plain, **CLOSE)
    assert sum(watch.rows) == N_ROWS
    assert rank_encoder.budget.learnt


def test_batches_that_do_not_fit_are_split_and_smaller_from_then_on(task, index, healthy, memory):
    attempts = memory(200)
    segment, watch, embedder = embedded(task, index)
    same_but_for([], segment, healthy)
    assert max(embedder.learnt.values()) <= 256
    assert {key.partition("/")[0] for key in embedder.learnt} == {"mini-dnabert-s", "mini-esm2"}
    failed = sum(padded > 200 for _, padded in attempts)
    assert failed >= 2
    attempts.clear()
    segment = embedder.embed(3, 0, N_ROWS, watch, Suspicion())
    same_but_for([], segment, healthy)
    assert sum(padded > 200 for _, padded in attempts) < failed / 2


def test_what_was_learnt_is_used_from_the_first_batch_on(task, index, healthy, memory):
    learnt = {"mini-dnabert-s/2": 190, "mini-esm2/2": 190}
    attempts = memory(190)
    segment, _, embedder = embedded(task, index, learnt=learnt)
    same_but_for([], segment, healthy)
    assert max(padded for _, padded in attempts) <= 190
    assert embedder.learnt == learnt


def test_a_row_that_does_not_fit_alone_is_set_aside_with_its_tokens(task, index, healthy, memory):
    lengths = index.row_lengths[:N_ROWS] + 2
    room = int(lengths[N_ROWS // 2])
    attempts = memory(room, views=("protein",))
    segment, watch, _ = embedded(task, index)
    too_long = np.flatnonzero(lengths > room).tolist()
    assert 0 < len(too_long) < N_ROWS
    same_but_for(too_long, segment, healthy)
    for row in too_long:
        assert segment.reasons[row] == (
            f"out_of_memory: its {lengths[row]} tokens do not fit into the memory for mini-esm2, "
            "even alone: 1.50 GiB more were wanted"
        )
    assert watch.rows[-1] == N_ROWS
    assert len(attempts) < 6 * N_ROWS


def test_a_convicted_row_is_not_tried_and_others_of_its_batch_are(task, index, healthy):
    suspicion = Suspicion(convicted={(1, 4): "its process dies of it: killed by SIGSEGV"})
    segment, watch, _ = embedded(task, index, suspicion)
    tried = [p for place in watch.places if place.stage == 1 for p in (place.first,)]
    assert 4 not in tried
    same_but_for([4], segment, healthy)  # rows stand longest first, as positions of residues do
    assert segment.reasons[4].endswith("killed by SIGSEGV")


@pytest.mark.parametrize("number", [0, 1])
def test_a_row_whose_tokens_kill_is_left_out_of_its_encoder(number, task, index, healthy):
    stage = tokenising(number)
    suspicion = Suspicion(
        suspects=(UnitSpan(3, stage, 8, 12),), convicted={(stage, 9): "its process dies of it"}
    )
    segment, watch, _ = embedded(task, index, suspicion)
    same_but_for([9], segment, healthy)
    assert segment.reasons == {9: "its process dies of it"}
    told = [(place.first, place.stop) for place in watch.places if place.stage == stage]
    assert told == [(0, 8), (12, N_ROWS), (8, 11), (11, 12)]


@pytest.mark.parametrize("stage", [0, 1, tokenising(0), tokenising(1)])
def test_one_row_can_be_tried_alone_and_first_of_all(stage, task, index):
    watch, place = Watch(), UnitSpan(3, stage, 5, 6)
    RowEmbedder(task, index).try_alone(place, 0, N_ROWS, watch, Suspicion())
    assert [one for one in watch.places if one.stage == stage] == [place]


def test_what_is_tried_alone_is_the_row_that_was_accused(task, index, monkeypatch):
    """Rows without tokens stand last: positions count along the same order as in the unit."""
    stage, convicted = tokenising(1), 2
    suspicion = Suspicion(convicted={(stage, convicted): "its process dies of it"})
    tried = []
    monkeypatch.setattr(
        ModuleEncoder, "encode", lambda _, batch: tried.append(batch) or torch.zeros(1, 1)
    )
    embedder = RowEmbedder(task, index)
    embedder.try_alone(UnitSpan(3, 1, 5, 6), 0, N_ROWS, Watch(), suspicion)
    (letters,) = index.sequences(np.array([6]), "protein")
    (expected,) = embedder._encoders[1].encoder.tokenise([letters])
    assert [len(batch) for batch in tried] == [1]
    assert tried[0].tokens[: tried[0].total].tolist() == expected.tolist()


def test_a_device_that_is_full_is_no_reason_to_set_rows_aside(task, index, memory):
    shortest = int(index.row_lengths[-1]) + 2
    memory(shortest - 1, views=("protein",))
    with pytest.raises(MemoryError, match=f"not even one sequence of {shortest} tokens"):
        embedded(task, index)


def test_a_unit_of_nothing_but_rows_that_are_too_large_is_answered(task, index, memory):
    """The first unit has the longest rows of all: nothing may have fitted before."""
    shortest = int(index.row_lengths[-1]) + 2
    attempts = memory(shortest, views=("protein",))
    segment = RowEmbedder(task, index).embed(0, 0, 4, Watch(), Suspicion())
    assert (index.row_lengths[:4] + 2 > shortest).all()
    assert segment.state.tolist() == [RowState.QUARANTINED] * 4
    assert all(reason.startswith("out_of_memory: its ") for reason in segment.reasons.values())
    tried = [tokens for name, tokens in attempts if name == "mini-esm2"]
    assert tried[-1] == shortest


def test_a_device_that_fills_up_is_no_reason_either(task, index, memory):
    longest = int(index.row_lengths[0]) + 2
    attempts = memory(512, views=("protein",))
    embedder = RowEmbedder(task, index)
    embedder.embed(3, 0, N_ROWS, Watch(), Suspicion())
    assert max(padded for _, padded in attempts) >= longest
    memory(longest - 1, views=("protein",))
    with pytest.raises(MemoryError, match=f"rows of up to {longest} tokens have fitted"):
        embedder.embed(3, 0, N_ROWS, Watch(), Suspicion())


def test_a_batch_that_killed_whole_and_not_in_halves_was_too_large(task, index, healthy):
    suspicion = Suspicion(suspects=(UnitSpan(3, 1, 0, 3),))
    segment, watch, embedder = embedded(task, index, suspicion)
    same_but_for([], segment, healthy)
    assert [place[2:] for place in watch.batches[-2:]] == [(0, 2), (2, 3)]
    padded = int((index.row_lengths[:3] + 2).sum())
    (limit,) = embedder.learnt.values()
    assert padded / 2 <= limit < padded
    _, _, embedder = embedded(task, index, Suspicion(suspects=(UnitSpan(3, 1, 2, 3),)))
    assert embedder.learnt == {}


@pytest.fixture
def planted(monkeypatch):
    """Put a number into vectors of one length of sequence; by a rule of (encoder, batch)."""

    def plant(view, length, value, when=lambda _encoder, _batch: True):
        encode = ModuleEncoder.encode

        def changed(self, batch):
            vectors = encode(self, batch).clone()
            if self.view == view and when(self, batch):
                lengths = batch.offsets.diff()[batch.places]
                vectors[lengths == length, 1] = value
            return vectors

        monkeypatch.setattr(ModuleEncoder, "encode", changed)

    return plant


def rows_of(index, length):
    return np.flatnonzero(index.row_lengths[:N_ROWS] + 2 == length).tolist()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_stays_not_finite_is_tried_once_alone_and_set_aside(
    value, task, index, healthy, planted
):
    length = int(index.row_lengths[5]) + 2
    planted("protein", length, value)
    segment, watch, _ = embedded(task, index)
    bad = rows_of(index, length)
    same_but_for(bad, segment, healthy)
    assert set(segment.reasons.values()) == {
        "not_finite: mini-esm2 gave a vector with 1 of 128 numbers not finite, in a batch and alone"
    }
    again = watch.places[-len(bad) :]
    assert again == [UnitSpan(3, 1, row, row + 1) for row in bad]


def test_a_row_that_is_finite_when_alone_is_kept(task, index, healthy, planted):
    length = int(index.row_lengths[5]) + 2
    planted("protein", length, float("nan"), when=lambda _encoder, batch: len(batch) > 1)
    segment, _, _ = embedded(task, index)
    same_but_for([], segment, healthy)


def test_a_row_that_overflows_in_half_precision_is_taken_from_fp32(task, index, healthy, planted):
    half = replace(task, precision="fp16")

    def at_half_precision(encoder, _batch):
        return encoder.module.dtype == torch.float16

    length = int(index.row_lengths[5]) + 2
    planted("protein", length, float("inf"), when=at_half_precision)
    segment, _, embedder = embedded(half, index)
    assert segment.reasons == {}
    assert embedder.again == {"fp32": len(rows_of(index, length))}
    dim = embedder._encoders[0].encoder.dim
    for row in rows_of(index, length):
        np.testing.assert_allclose(
            segment.embeddings[row, dim:], healthy.embeddings[row, dim:], **CLOSE
        )


def test_a_vector_that_overflows_what_is_stored_says_so(task, index, planted):
    stored = replace(task, embeddings="fp16")
    length = int(index.row_lengths[5]) + 2
    planted("protein", length, 1e6)
    segment, _, _ = embedded(stored, index)
    (reason,) = set(segment.reasons.values())
    assert reason == (
        "overflow: its vector has numbers up to 1e+06, more than float16 stores (a new run with "
        "--embeddings fp32 keeps it), in a batch and alone"
    )


@pytest.fixture
def between(task, monkeypatch):
    """Give the machine too little memory for ESM-2 at fp32, and enough at bf16."""
    room = PROCESS_BYTES + 4 * sum(map(math.prod, shapes_of(task.encoders[1])))
    monkeypatch.setattr("virnucpro.encoders.memory.placement.usable_memory", lambda: room)


def test_where_fp32_has_no_room_bf16_answers(task, index, healthy, planted, between):
    half = replace(task, precision="fp16")
    length = int(index.row_lengths[5]) + 2
    planted("protein", length, float("inf"), lambda one, _: one.module.dtype == torch.float16)
    segment, _, embedder = embedded(half, index)
    bad = rows_of(index, length)
    assert segment.reasons == {}
    assert embedder.again == {"bf16": len(bad)}
    np.testing.assert_allclose(segment.embeddings, healthy.embeddings, rtol=0, atol=0.05)
    assert np.abs(segment.embeddings[bad] - healthy.embeddings[bad]).max() > 1e-5


def test_what_bf16_cannot_answer_either_is_told(task, index, planted, between):
    half = replace(task, precision="fp16")
    length = int(index.row_lengths[5]) + 2
    planted("protein", length, float("inf"))
    segment, _, embedder = embedded(half, index)
    assert sorted(segment.reasons) == rows_of(index, length)
    assert not embedder.again
    (reason,) = set(segment.reasons.values())
    assert re.search(
        r"^not_finite: mini-esm2 .* at fp16 in a batch and at bf16 alone; no nearer to fp32, for "
        r"want of memory: fp32 wants 0\.54 GB and cpu has 0\.54 GB left\. A run of its own",
        reason,
    )


def out_of_memory(*_arguments):
    raise torch.OutOfMemoryError("Tried to allocate 11.00 GiB")


@pytest.mark.parametrize(
    ("precision", "patched", "said"),
    [
        ("bf16", {"load_encoder": out_of_memory}, "fp32 does not fit into what cpu has left"),
        ("bf16", {"free_bytes": lambda _: 10**8}, "fp32 wants 0.54 GB and cpu has 0.10 GB left"),
        ("fp16", {"free_bytes": lambda _: 10**8}, "left; bf16 wants 0.54 GB and cpu has 0.10 GB"),
    ],
)
def test_rows_that_no_twin_has_room_for_are_set_aside_and_no_others(
    precision, patched, said, task, index, planted, monkeypatch
):
    half = replace(task, precision=precision)
    length = int(index.row_lengths[5]) + 2
    undisturbed, _, _ = embedded(half, index)
    planted("protein", length, float("nan"))
    for name, value in patched.items():
        monkeypatch.setattr(fallback_precision, name, value)
    segment, _, embedder = embedded(half, index)
    same_but_for(rows_of(index, length), segment, undisturbed)
    assert not embedder.again
    assert all(said in reason for reason in segment.reasons.values())


def test_a_row_that_does_not_fit_at_fp32_is_set_aside(task, index, planted, memory, monkeypatch):
    half = replace(task, precision="bf16")
    length = int(index.row_lengths[5]) + 2
    planted("protein", length, float("nan"))
    embedder = RowEmbedder(half, index)
    encode = ModuleEncoder.encode

    def full_at_fp32(self, batch):
        return out_of_memory() if self.module.dtype == torch.float32 else encode(self, batch)

    monkeypatch.setattr(ModuleEncoder, "encode", full_at_fp32)
    monkeypatch.setattr(DnabertS, "dtype", torch.bfloat16, raising=False)
    segment = embedder.embed(3, 0, N_ROWS, Watch(), Suspicion())
    assert sorted(segment.reasons) == rows_of(index, length)
    assert all(
        reason.endswith("11.00 GiB more were wanted, tried again alone at fp32")
        for reason in segment.reasons.values()
    )


def test_on_a_gpu_a_budget_is_found_by_trial_once(task, index, memory):
    attempts = memory(3000)
    encoder = RankEncoder(1, task.encoders[1], "cpu", "fp32", 1024, {})
    (longest,) = index.sequences(np.zeros(1, np.int64), "protein")
    encoder.find_budget(longest, 1024)
    assert encoder.budget(5) == 2048
    assert len(attempts) == 3
    again = RankEncoder(1, task.encoders[1], "cpu", "fp32", 1024, encoder.budget.learnt)
    again.find_budget(longest, 1024)
    assert again.budget(5) == 2048
    assert len(attempts) == 3


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_a_gpu_that_runs_out_of_memory_for_real(task):
    encoders = {
        device: RankEncoder(1, task.encoders[1], device, "fp32", 1 << 24, {})
        for device in ("cpu", "cuda")
    }
    dice = np.random.default_rng(4)
    residues = np.frombuffer(b"LAGVSERTIDPKQNFYMHWC", np.uint8)
    sequences = [dice.choice(residues, 500).tobytes() for _ in range(2_000)]
    tokens = UnitTokens(3, encoders["cpu"].encoder.tokenise(sequences))
    encoders["cpu"].budget.lower(500, 8)
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, 2e8 / total))
    try:
        found = encoders["cuda"].vectors(
            tokens, Suspicion(), print, print, shortest=lambda: 502, ahead=True
        )
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    expected = encoders["cpu"].vectors(tokens, Suspicion(), print, print, shortest=lambda: 502)
    assert found.reasons == {}
    assert encoders["cuda"].budget(500) < 1 << 20
    torch.testing.assert_close(found.vectors, expected.vectors, rtol=0, atol=1e-3)
