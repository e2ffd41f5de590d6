from virnucpro.cli.commands.evaluate_command import as_text
from virnucpro.lab.evaluation.comparison import Comparison, Difference, Row

FIGURES = ("auroc", "auprc", "recall_at_fpr_5", "mcc", "fdr", "ece")
CALLED = ("viral_as_viral", "non_viral_as_viral")


def row(tool, intervals, note=""):
    counts = {"n_viral": 1200, "n_non_viral": 7, "n_without_score": 604}
    values = dict.fromkeys((*FIGURES, *CALLED), 0.25)
    return Row(tool, "500", "all", "all", "all", counts, values, intervals, note)


def test_the_summary_states_counts_figures_and_differences():
    rows = [row("mini", {"auroc": (0.2, 0.3)}), row("other", {}, "only one viral group")]
    names = ("other", "mini", "500", "all", "all")
    differences = [
        Difference(*names, figure, 0.1, interval, "")
        for figure, interval in (
            ("auroc", (0.05, 0.2)),
            ("recall_at_fpr_5", None),
            ("mcc", (float("nan"), float("nan"))),
        )
    ]
    text = as_text(Comparison(rows, differences))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "mini 500 1,200 7 604 0.250 [0.200, 0.300]" + 7 * " 0.250" in lines
    assert "other - mini 500 +0.100 [+0.050, +0.200] +0.100 +0.100" in lines
    assert lines[-1] == "no intervals at 500: only one viral group"
