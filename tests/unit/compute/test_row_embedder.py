"""Units of a small index through the encoders of mini, with planted failures."""

import random
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest
import torch
from doubles import Watch, isolating
from samples import index_of

from virnucpro.compute import rank_encoder
from virnucpro.compute.encoder_pass import UnitTokens
from virnucpro.compute.poison_isolation import (
    FINISHING,
    tokenising_stage,
)
from virnucpro.compute.rank_encoder import RankEncoder
from virnucpro.compute.row_embedder import RowEmbedder
from virnucpro.encoders.encoder import TorchEncoder, start_copy_to_cpu
from virnucpro.encoders.registry import load_encoder
from virnucpro.runtime.policy import Findings, TaskSpan
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec
from virnucpro.store.schema import RowState
from virnucpro.store.segment import encode_segment

N_ROWS = 24
CLOSE = {"rtol": 0, "atol": 2e-5}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Rows of 20 to 160 residues, every frame of 12 records without a stop."""
    dice = random.Random(5)
    records = [bytes(dice.choices(b"ACG", [1, 2, 2], k=dice.randint(60, 480))) for _ in range(12)]
    spec = IndexSpec("frames", Alphabet.NUCLEOTIDE, 500, "even", 11)
    return index_of(tmp_path_factory.mktemp("index"), records, spec)


@pytest.fixture(scope="module")
def task(tmp_path_factory, doubles):
    return doubles.mini_task(tmp_path_factory.mktemp("run"), N_ROWS)


@pytest.fixture(scope="module")
def length(index):
    """The number of tokens of row 5; other rows may have as many."""
    return int(index.row_lengths[5]) + 2


@pytest.fixture(scope="module")
def healthy(task, index):
    return RowEmbedder(task, index).embed(3, range(N_ROWS), Watch(), Findings())


@pytest.fixture
def memory(monkeypatch):
    """Limit the tokens of a batch; return all attempts as (name, tokens)."""

    def limit(tokens, views=("nucleotide", "protein")):
        attempts = []
        encode = TorchEncoder.encode

        def limited(self, batch):
            attempts.append((self.name, batch.total))
            if self.view in views and batch.total > tokens:
                raise torch.OutOfMemoryError(
                    "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0"
                )
            return encode(self, batch)

        monkeypatch.setattr(TorchEncoder, "encode", limited)
        return attempts

    return limit


@pytest.fixture
def long_rows(monkeypatch):
    """Make all rows longer than sequences that must fit into memory; return the length of these."""
    monkeypatch.setattr("virnucpro.compute.rank_encoder._ORDINARY_TOKENS", 5)
    return 5


def limits_of(encoder):
    """Return the lowered token budgets of an encoder, by length class."""
    return encoder.budget._limits


def embedded(task, index, suspicion=None):
    watch, embedder = Watch(), RowEmbedder(task, index)
    segment = embedder.embed(3, range(N_ROWS), watch, suspicion or Findings())
    encode_segment(segment)  # refuses a number that is not finite
    return segment, watch, embedder


def assert_same_except(rows, segment, healthy):
    kept = np.setdiff1d(np.arange(N_ROWS), list(rows))
    np.testing.assert_allclose(segment.embeddings[kept], healthy.embeddings[kept], **CLOSE)
    np.testing.assert_allclose(segment.scores[kept], healthy.scores[kept], **CLOSE)
    assert sorted(segment.reasons) == sorted(rows)
    assert np.flatnonzero(segment.state == RowState.QUARANTINED).tolist() == sorted(rows)
    for values in (segment.embeddings, segment.scores):
        assert not values[sorted(rows)].any()


def test_every_row_is_reported_before_and_after_encoding(task, index, healthy):
    segment, watch, _ = embedded(task, index)
    stages = list(dict.fromkeys(place.stage for place in watch.places))
    assert stages == [tokenising_stage(0), 0, tokenising_stage(1), 1, FINISHING]
    for stage in stages[:-1]:
        places = [place for place in watch.places if place.stage == stage]
        positions = [p for place in places for p in range(place.first, place.stop)]
        assert positions == list(range(N_ROWS))
    assert {place.task for place in watch.places} == {3}
    assert watch.rows == sorted(watch.rows)
    assert watch.rows[-1] == N_ROWS
    assert len(watch.rows) == len(watch.batches)
    assert_same_except([], segment, healthy)


def prefetched(embedder):
    future = Future()
    future.set_result(embedder.tokenise(3, range(N_ROWS)))
    return future


def test_prefetched_tokens_give_the_same_bits(task, index, healthy):
    watch, embedder = Watch(), RowEmbedder(task, index)
    segment = embedder.embed(3, range(N_ROWS), watch, Findings(), prefetched(embedder))
    assert encode_segment(segment) == encode_segment(healthy)
    assert watch.places[0] == TaskSpan(3, tokenising_stage(0), 0, N_ROWS)
    assert list(dict.fromkeys(place.stage for place in watch.places[1:])) == [0, 1, FINISHING]


def test_an_error_of_the_prefetch_is_raised_with_the_position_reported(task, index):
    watch, fed = Watch(), Future()
    fed.set_exception(ValueError("planted"))
    with pytest.raises(ValueError, match="planted"):
        RowEmbedder(task, index).embed(3, range(N_ROWS), watch, Findings(), fed)
    assert watch.places == [TaskSpan(3, tokenising_stage(0), 0, N_ROWS)]


@pytest.fixture
def protein_encoder(task):
    return RankEncoder(1, task.encoders[1], "cpu", "fp32", task.batch_tokens)


def through_one_encoder(protein_encoder, index, *, prefetch):
    watch = Watch()
    ids = protein_encoder.encoder.tokenise(index.sequences(np.arange(N_ROWS), "protein"))
    encoded = protein_encoder.vectors(
        UnitTokens(3, ids),
        Findings(),
        watch.report_next,
        watch.report_encoded,
        prefetch=prefetch,
    )
    assert encoded.reasons == {}
    assert encoded.filling.tokens == sum(map(len, ids))
    assert encoded.filling.batches == len(watch.rows)
    return encoded.vectors, watch


def test_prefetched_batches_give_the_same_bits(protein_encoder, index):
    plain, _ = through_one_encoder(protein_encoder, index, prefetch=False)
    ahead, watch = through_one_encoder(protein_encoder, index, prefetch=True)
    assert np.array_equal(plain, ahead)
    assert [p for place in watch.places for p in range(place.first, place.stop)] == [*range(N_ROWS)]
    assert sum(watch.rows) == N_ROWS
    assert len(watch.rows) == len(watch.places) > 2


def test_the_next_batch_is_queued_before_the_wait(protein_encoder, index, monkeypatch):
    """The device computes the next batch while the host waits for the vectors of one."""
    steps = []
    encode = TorchEncoder.encode

    def launched(self, batch):
        steps.append("launch")
        return encode(self, batch)

    def start_copy(vectors):
        steps.append("copy")
        return lambda: steps.append("wait") or vectors.numpy()

    monkeypatch.setattr(TorchEncoder, "encode", launched)
    monkeypatch.setattr("virnucpro.encoders.encoder.start_copy_to_cpu", start_copy)
    through_one_encoder(protein_encoder, index, prefetch=True)
    n_batches = steps.count("launch")
    begin = ["launch", "copy"]
    assert n_batches > 2
    assert steps == [*begin, *[*begin, "wait"] * (n_batches - 1), "wait"]


@pytest.mark.gpu
def test_the_wait_for_a_copy_ignores_later_work_on_the_gpu(cuda):
    vectors = torch.arange(12, dtype=torch.float32, device=cuda).view(3, 4)
    fetch = start_copy_to_cpu(vectors)
    torch.cuda._sleep(2_000_000_000)  # cycles: about a second of work behind the copy
    assert np.array_equal(fetch(), np.arange(12, dtype=np.float32).reshape(3, 4))
    assert not torch.cuda.current_stream().query()
    torch.cuda.synchronize()


def test_prefetched_batches_that_do_not_fit_are_split(protein_encoder, index, memory):
    plain, _ = through_one_encoder(protein_encoder, index, prefetch=False)
    memory(200)
    split, watch = through_one_encoder(protein_encoder, index, prefetch=True)
    np.testing.assert_allclose(split, plain, **CLOSE)
    assert sum(watch.rows) == N_ROWS
    assert limits_of(protein_encoder)


def test_batches_that_do_not_fit_are_split_and_later_ones_are_smaller(task, index, healthy, memory):
    attempts = memory(200)
    segment, watch, embedder = embedded(task, index)
    assert_same_except([], segment, healthy)
    assert all(0 < max(limits_of(encoder).values()) <= 256 for encoder in embedder._encoders)
    failed = sum(padded > 200 for _, padded in attempts)
    assert failed >= 2
    attempts.clear()
    segment = embedder.embed(3, range(N_ROWS), watch, Findings())
    assert_same_except([], segment, healthy)
    assert sum(padded > 200 for _, padded in attempts) < failed / 2


def test_a_row_that_does_not_fit_alone_is_quarantined_with_its_tokens(
    task, index, healthy, memory, long_rows
):
    lengths = index.row_lengths[:N_ROWS] + 2
    room = int(lengths[N_ROWS // 2])
    attempts = memory(room, views=("protein",))
    segment, watch, _ = embedded(task, index)
    too_long = np.flatnonzero(lengths > room).tolist()
    assert 0 < len(too_long) < N_ROWS
    assert_same_except(too_long, segment, healthy)
    for row in too_long:
        assert segment.reasons[row] == (
            f"out_of_memory: a sequence of {lengths[row]} tokens does not fit into the memory for "
            "mini-esm2, even alone (1.50 GiB more needed)"
        )
    assert watch.rows[-1] == N_ROWS
    assert len(attempts) < 6 * N_ROWS


def test_an_isolated_row_is_skipped_and_its_batch_is_encoded(task, index, healthy):
    suspicion = isolating(1, 4)
    segment, watch, _ = embedded(task, index, suspicion)
    tried = [p for place in watch.places if place.stage == 1 for p in (place.first,)]
    assert 4 not in tried
    assert_same_except([4], segment, healthy)  # rows and positions are both in descending length
    assert segment.reasons[4].endswith("killed by SIGSEGV")


@pytest.mark.parametrize("number", [0, 1])
def test_a_row_that_kills_the_tokeniser_is_skipped(number, task, index, healthy):
    stage = tokenising_stage(number)
    suspicion = replace(isolating(stage, 9), suspects=(TaskSpan(3, stage, 8, 12),))
    segment, watch, _ = embedded(task, index, suspicion)
    assert_same_except([9], segment, healthy)
    why = "kills_process: the worker dies even if it encodes this row alone: killed by SIGSEGV"
    assert segment.reasons == {9: why}
    marked = [(place.first, place.stop) for place in watch.places if place.stage == stage]
    assert marked == [(0, 8), (12, N_ROWS), (8, 11), (11, 12)]


@pytest.mark.parametrize("stage", [0, 1, tokenising_stage(0), tokenising_stage(1)])
def test_one_row_can_be_tried_alone_before_others(stage, task, index):
    watch, place = Watch(), TaskSpan(3, stage, 5, 6)
    RowEmbedder(task, index).try_alone(place, range(N_ROWS), watch, Findings())
    assert [one for one in watch.places if one.stage == stage] == [place]


def test_the_suspected_row_is_the_one_tried_alone(task, index, monkeypatch):
    """Rows without tokens are last in the order that positions refer to."""
    stage, isolated = tokenising_stage(1), 2
    suspicion = isolating(stage, isolated)
    tried = []
    monkeypatch.setattr(
        TorchEncoder, "encode", lambda _, batch: tried.append(batch) or torch.zeros(1, 1)
    )
    embedder = RowEmbedder(task, index)
    embedder.try_alone(TaskSpan(3, 1, 5, 6), range(N_ROWS), Watch(), suspicion)
    (letters,) = index.sequences(np.array([6]), "protein")
    (expected,) = embedder._encoders[1].encoder.tokenise([letters])
    assert [len(batch) for batch in tried] == [1]
    assert tried[0].tokens[: tried[0].total].tolist() == expected.tolist()


def test_a_device_without_memory_for_a_row_of_usual_length_fails(task, index, memory):
    longest = int(index.row_lengths[0]) + 2
    memory(longest - 1, views=("protein",))
    with pytest.raises(MemoryError, match=f"one sequence of {longest} tokens does not fit"):
        embedded(task, index)


def test_a_unit_with_only_rows_that_are_too_large_is_quarantined(task, index, memory, long_rows):
    """The first unit has the longest rows; no row has fitted before."""
    shortest = int(index.row_lengths[-1]) + 2
    attempts = memory(shortest, views=("protein",))
    segment = RowEmbedder(task, index).embed(0, range(4), Watch(), Findings())
    assert (index.row_lengths[:4] + 2 > shortest).all()
    assert segment.state.tolist() == [RowState.QUARANTINED] * 4
    assert all(reason.startswith("out_of_memory: a ") for reason in segment.reasons.values())
    tried = [tokens for name, tokens in attempts if name == "mini-esm2"]
    assert tried[-1] == long_rows


def test_a_device_that_fills_up_later_fails_instead_of_quarantining_rows(
    task, index, memory, long_rows
):
    longest = int(index.row_lengths[0]) + 2
    attempts = memory(512, views=("protein",))
    embedder = RowEmbedder(task, index)
    embedder.embed(3, range(N_ROWS), Watch(), Findings())
    assert max(padded for _, padded in attempts) >= longest
    memory(longest - 1, views=("protein",))
    with pytest.raises(MemoryError, match=f"rows of up to {longest} tokens fitted"):
        embedder.embed(3, range(N_ROWS), Watch(), Findings())


def test_a_batch_that_kills_only_as_a_whole_lowers_the_budget(task, index, healthy):
    suspicion = Findings(suspects=(TaskSpan(3, 1, 0, 3),))
    segment, watch, embedder = embedded(task, index, suspicion)
    assert_same_except([], segment, healthy)
    assert [place[2:] for place in watch.batches[-2:]] == [(0, 2), (2, 3)]
    padded = int((index.row_lengths[:3] + 2).sum())
    (limit,) = (limit for encoder in embedder._encoders for limit in limits_of(encoder).values())
    assert padded / 2 <= limit < padded
    _, _, embedder = embedded(task, index, Findings(suspects=(TaskSpan(3, 1, 2, 3),)))
    assert not any(map(limits_of, embedder._encoders))


@pytest.fixture
def planted(monkeypatch):
    """Plant a number into the vectors of one sequence length, if `when` returns true."""

    def plant(view, length, value, when=lambda _encoder, _batch: True):
        encode = TorchEncoder.encode

        def changed(self, batch):
            vectors = encode(self, batch).clone()
            if self.view == view and when(self, batch):
                lengths = batch.offsets.diff()[batch.places]
                vectors[lengths == length, 1] = value
            return vectors

        monkeypatch.setattr(TorchEncoder, "encode", changed)

    return plant


def rows_of(index, length):
    return np.flatnonzero(index.row_lengths[:N_ROWS] + 2 == length).tolist()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_stays_not_finite_is_retried_once_and_quarantined(
    value, task, index, healthy, planted, length
):
    planted("protein", length, value)
    segment, watch, _ = embedded(task, index)
    bad = rows_of(index, length)
    assert_same_except(bad, segment, healthy)
    (reason,) = set(segment.reasons.values())
    assert reason == (
        "not_finite: 1 of 128 numbers of the mini-esm2 vector are NaN or infinite, in a batch "
        "and alone"
    )
    again = watch.places[-len(bad) :]
    assert again == [TaskSpan(3, 1, row, row + 1) for row in bad]


def test_a_row_that_is_finite_alone_is_kept(task, index, healthy, planted, length):
    planted("protein", length, float("nan"), when=lambda _encoder, batch: len(batch) > 1)
    segment, _, _ = embedded(task, index)
    assert_same_except([], segment, healthy)


def test_a_row_that_overflows_at_half_precision_falls_back_to_fp32(
    task, index, healthy, planted, length
):
    half = replace(task, precision="fp16")

    def at_half_precision(encoder, _batch):
        return encoder.module.model.dtype == torch.float16

    planted("protein", length, float("inf"), when=at_half_precision)
    segment, _, embedder = embedded(half, index)
    assert segment.reasons == {}
    assert embedder.recomputed == len(rows_of(index, length))
    dim = embedder._encoders[0].encoder.dim
    for row in rows_of(index, length):
        np.testing.assert_allclose(
            segment.embeddings[row, dim:], healthy.embeddings[row, dim:], **CLOSE
        )


def test_a_vector_too_large_for_the_stored_precision_is_quarantined(task, index, planted, length):
    stored = replace(task, embeddings="fp16")
    planted("protein", length, 1e6)
    segment, _, _ = embedded(stored, index)
    (reason,) = set(segment.reasons.values())
    assert reason == (
        "overflow: the vector has numbers up to 1e+06, too large for float16 (start a new run with "
        "--embeddings fp32), in a batch and alone"
    )


def out_of_memory(*_arguments):
    raise torch.OutOfMemoryError("Tried to allocate 11.00 GiB")


def no_memory_at_fp32(spec, device, precision):
    return out_of_memory() if precision == "fp32" else load_encoder(spec, device, precision)


@pytest.mark.parametrize(
    ("name", "value"), [("load_encoder", no_memory_at_fp32), ("free_bytes", lambda _: 10**4)]
)
def test_without_memory_for_fp32_only_these_rows_are_quarantined(
    name, value, task, index, planted, length, monkeypatch
):
    half = replace(task, precision="bf16")
    undisturbed, _, _ = embedded(half, index)
    planted("protein", length, float("nan"))
    monkeypatch.setattr(rank_encoder, name, value)
    segment, _, embedder = embedded(half, index)
    assert_same_except(rows_of(index, length), segment, undisturbed)
    assert not embedder.recomputed
    assert all("memory of cpu is too small" in reason for reason in segment.reasons.values())


def test_a_row_that_does_not_fit_at_fp32_is_quarantined(task, index, planted, length, monkeypatch):
    half = replace(task, precision="bf16")
    planted("protein", length, float("nan"))
    embedder = RowEmbedder(half, index)
    encode = TorchEncoder.encode

    def full_at_fp32(self, batch):
        return out_of_memory() if self.module.model.dtype == torch.float32 else encode(self, batch)

    monkeypatch.setattr(TorchEncoder, "encode", full_at_fp32)
    segment = embedder.embed(3, range(N_ROWS), Watch(), Findings())
    assert sorted(segment.reasons) == rows_of(index, length)
    assert all(
        reason.endswith("(11.00 GiB more needed); tried at bf16 in a batch and at fp32 alone")
        for reason in segment.reasons.values()
    )


def test_a_budget_is_found_by_trial_once(task, index, memory):
    attempts = memory(3000)
    encoder = RankEncoder(1, task.encoders[1], "cpu", "fp32", 1024)
    (longest,) = index.sequences(np.zeros(1, np.int64), "protein")
    encoder.find_budget(longest, 1024)
    assert encoder.budget(5) == 2048
    encoder.find_budget(longest, 1024)
    assert len(attempts) == 3


@pytest.mark.gpu
@pytest.mark.usefixtures("cuda")
def test_batches_are_split_on_a_gpu_without_memory(task):
    encoders = {
        device: RankEncoder(1, task.encoders[1], device, "fp32", 1 << 24)
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
        found = encoders["cuda"].vectors(tokens, Findings(), print, print, prefetch=True)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    expected = encoders["cpu"].vectors(tokens, Findings(), print, print)
    assert found.reasons == {}
    assert encoders["cuda"].budget(500) < 1 << 20
    np.testing.assert_allclose(found.vectors, expected.vectors, rtol=0, atol=1e-3)
