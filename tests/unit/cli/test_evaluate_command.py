from virnucpro.cli.commands.evaluate_command import as_text
from virnucpro.lab.evaluation.comparison import Comparison, Difference, Row


def row(tool, kingdom="all", label="all", **more):
    names = ("auroc", "auroc_scored", "auprc", "recall_at_fpr_1", "recall_at_fpr_5", "f1", "mcc")
    values = dict.fromkeys((*names, "fdr", "ece", "viral_as_viral", "non_viral_as_viral"), 0.25)
    counts = {"n_viral": 1200, "n_non_viral": 7, "n_without_score": 604}
    settings = {"note": "", "intervals": {"auroc": (0.2, 0.3)}, **more}
    names = {"tool": tool, "length": "500", "label": label, "kingdom": kingdom, "group": "all"}
    return Row(**names, unanswered="mean", counts=counts, values=values, **settings)


def test_the_summary_states_weights_rules_counts_and_differences():
    rows = [row("mini"), row("other", intervals={}, note="only one viral group")]
    rows.append(row("mini", "fungi", "non-viral"))
    names = ("other", "mini", "500", "all", "all")
    differences = [
        Difference(*names, figure, 0.1, interval, "")
        for figure, interval in (
            ("auroc", (0.05, 0.2)),
            ("recall_at_fpr_5", None),
            ("mcc", (float("nan"), float("nan"))),
        )
    ]
    text = as_text(Comparison(rows, differences), prevalence=0.1)
    assert "viral share 0.1; fragments without a score: mini at the mean score" in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "mini 500 1,200 7 50.0% 0.250 [0.200, 0.300]" + 8 * " 0.250" in lines
    assert "mini non-viral fungi 25.0% (7)" in lines
    assert "other - mini 500 +0.100 [+0.050, +0.200] +0.100 +0.100" in lines
    assert lines[-1] == "no intervals at 500: only one viral group"
