"""An evaluation in words."""

from __future__ import annotations

from scalerl.accounting.passes import Measured
from scalerl.core.units import format_number
from scalerl.records.cost import Activity
from scalerl.reports.tables import Table
from scalerl.runs.evaluate import Evaluation


def evaluation_tables(evaluation: Evaluation) -> tuple[Table, Table]:
    """What the checkpoint reaches, and how its completions ended."""
    measures = [
        (f"mean@{evaluation.samples}", evaluation.mean),
        *((f"pass@{k}", value) for k, value in evaluation.pass_at.items()),
        *((f"maj@{k}", value) for k, value in evaluation.majority_at.items()),
    ]
    reached = Table(
        f"{evaluation.task}, {evaluation.mean.num_prompts} held-out prompts at temperature {evaluation.temperature:g}",
        ("measure", "value", f"{evaluation.level:.0%} interval over prompts"),
        tuple((name, f"{value.value:.4f}", _interval(value)) for name, value in measures),
    )
    ceiling = () if evaluation.ceiling is None else (("ceiling that the task proves", f"{evaluation.ceiling:.4f}"),)
    rows = (
        *ceiling,
        ("tokens of a completion", format_number(evaluation.tokens_mean)),
        ("cut off at the budget", f"{evaluation.cut_off_share:.1%}"),
        ("interrupted", f"{evaluation.interrupted_share:.1%}"),
        ("grading failed", str(evaluation.num_ungraded)),
        ("sampling", _cost(evaluation)),
    )
    return reached, Table("How they ended", ("what", "value"), rows)


def _interval(value: Measured) -> str:
    return f"{value.low:.4f} to {value.high:.4f}"


def _cost(evaluation: Evaluation) -> str:
    costs = [cost for cost in evaluation.costs if cost.activity is Activity.EVALUATE]
    return f"{format_number(sum(cost.seconds for cost in costs))} s, {format_number(sum(cost.flops for cost in costs))} FLOP"
