"""The published merged vectors through a classifier, a segment and the tables."""

import numpy as np
import pytest

from virnucpro.run_dir import RunDirectory


@pytest.mark.shared
def test_the_published_vectors_give_the_published_result_files(shared, tmp_path):
    import torch
    from safetensors.torch import save_file

    from virnucpro.classifier.consensus import Thresholds
    from virnucpro.classifier.decision import call_records
    from virnucpro.classifier.head import head_shapes, load_head
    from virnucpro.classifier.run_scores import run_windows, score_run
    from virnucpro.sequences.index import build_index
    from virnucpro.sequences.records import Alphabet
    from virnucpro.sequences.spec import IndexSpec
    from virnucpro.store.coverage import survey
    from virnucpro.store.segment import Segment
    from virnucpro.store.writer import ShardWriter
    from virnucpro.tables.published import PublishedConsensus, PublishedResults
    from virnucpro.tables.source import RunScores
    from virnucpro.tables.write import write_table

    reference = shared / "reference" / "published-tool"
    merged = torch.load(
        reference / "test_with_orfs_merged" / "output_1_merged.pt", weights_only=True
    )
    torch.manual_seed(4)
    made = {
        name: torch.randn(shape) / 60 if len(shape) > 1 else torch.rand(shape) + 0.5
        for name, shape in head_shapes((3328, 512, 2)).items()
    }
    save_file(made, tmp_path / "head.safetensors")
    head = load_head(tmp_path / "head.safetensors")

    spec = IndexSpec("frames", Alphabet.NUCLEOTIDE, 500, "published", 1)
    run = RunDirectory(tmp_path)
    run.machine.mkdir()
    index = build_index(run.index, [str(reference / "test_with_orfs.fa")], spec)
    assert index.item_names(np.arange(index.n_items)) == merged["ids"]
    vectors = torch.empty_like(merged["data"])
    vectors[torch.from_numpy(np.array(index.item_row))] = merged["data"]
    segment = Segment(
        unit=0,
        fingerprint="f",
        rows=np.arange(index.n_rows),
        state=np.zeros(index.n_rows, np.uint8),
        embeddings=vectors.numpy(),
        scores=head.scores(vectors.numpy()),
    )
    ShardWriter(run, 0).commit(segment)
    coverage = survey(run, np.array([0, index.n_rows]), "f")
    windows = run_windows(index, coverage)
    records = score_run(index, windows, coverage)
    calls = call_records(records, Thresholds())
    labels = ("others", "virus")
    scores = RunScores(index, coverage, windows, records, calls, labels=labels)
    write_table(run.published_results, PublishedResults, scores)
    write_table(run.published_consensus, PublishedConsensus, scores)

    expected = straight_line_scores(made, merged["data"].double().numpy())
    lines = [line.split("\t") for line in run.published_results.read_text().splitlines()]
    assert lines[0] == ["Sequence_ID", "Prediction", "score1", "score2"]
    assert [line[0] for line in lines[1:]] == merged["ids"]
    assert [line[1] for line in lines[1:]] == [
        "virus" if virus > others else "others" for others, virus in expected
    ]
    assert np.abs(np.array([line[2:] for line in lines[1:]], float) - expected).max() <= 1e-5
    lines = [line.split("\t") for line in run.published_consensus.read_text().splitlines()]
    assert lines[0] == ["Modified_ID", "Is_Virus", "max_score_0", "max_score_1"]
    best = expected.reshape(2, 2, 2).max(axis=1)
    assert [line[:2] for line in lines[1:]] == [
        [f"synthetic_seq_{number}_chunk_1", str(bool(virus >= others))]
        for number, (others, virus) in enumerate(best, start=1)
    ]


def straight_line_scores(weights, vectors):
    """Linear, batch norm, ReLU, linear and softmax in float64."""
    get = {name: tensor.double().numpy() for name, tensor in weights.items()}
    hidden = vectors @ get["hidden.0.linear.weight"].T + get["hidden.0.linear.bias"]
    deviation = np.sqrt(get["hidden.0.norm.running_var"] + 1e-5)
    hidden = (hidden - get["hidden.0.norm.running_mean"]) / deviation
    hidden = np.maximum(hidden * get["hidden.0.norm.weight"] + get["hidden.0.norm.bias"], 0)
    logits = hidden @ get["output.weight"].T + get["output.bias"]
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)
