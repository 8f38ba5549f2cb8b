"""What re-prefill costs beside decoding as completions and the intervals between updates grow, on the embedded engine.

    python benchmarks/reprefill_cost.py [FIGURE.svg]

16 rows of exactly L tokens after prompts of 16, a push (of the same weights) after every K tokens of a row, the first one at K/2;
a Qwen3 of 64 channels and 2 layers, one thread, CPU-seconds of this process. Three things are checked:

    counts    re-prefilled tokens are exactly those of the rows at each push, and the law of accounting/kv_costs.py in the mean
    fit       seconds = a tokens + b pairs, least squares over all pushes, against the seconds of each (L, K); short passes are
              dearer a token than that, and stated apart
    forecast  each (L, K)'s ratio of re-prefill to decoding, predicted from one of them alone by `Measured.at`

Writes a figure, docs/figures/reprefill_cost.svg unless another is named, and prints as its last line
{tokens_exact, tokens_vs_law, fit_error, fit_error_short, forecast_error, tokens_exponent_L, tokens_exponent_K, ratio_longest, ...}.
"""

import sys
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from _report import Requirement, finish
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from scalerl.accounting.kv_costs import Measured, Passes, Rates, Work, Workload, reprefill_of_life
from scalerl.accounting.meter import Meter
from scalerl.engines.embedded import Drift, Embedded
from scalerl.models.config import Config
from scalerl.objective.length_controls.truncation import Truncation
from scalerl.records.cost import Activity, Cost
from scalerl.records.roles import Request
from scalerl.records.rollout import Prompt

LENGTHS, INTERVALS = (64, 128, 256, 512, 1024), (16, 32, 64, 128)
NUM_ROWS, PROMPT_TOKENS = 16, 16
FORECAST_FROM = (256, 32)
LONG = 256
"""Tokens from which on a pass costs what its tokens and pairs do."""
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "reprefill_cost.svg"
COLOURS = ("#1f5fbf", "#d9660b", "#0d8a6a", "#7c4dbd")
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "scalerl", "font.family": "sans-serif", "font.size": 10.0}


class CpuClock:
    """CPU-seconds of this process, which other work on the machine does not stretch."""

    def now_s(self) -> float:
        """Seconds since the process began."""
        return time.process_time()


@dataclass(frozen=True, slots=True)
class Cell:
    """One length and interval."""

    length: int
    interval: int
    pushes: tuple[tuple[Work, float], ...]
    """What each push computed anew, and its seconds."""
    decode_s: float

    @property
    def work(self) -> Work:
        """All that was computed anew."""
        return Work(sum(work.tokens for work, _ in self.pushes), sum(work.pairs for work, _ in self.pushes))

    @property
    def reprefill_s(self) -> float:
        """Seconds of it."""
        return sum(seconds for _, seconds in self.pushes)

    @property
    def ratio(self) -> float:
        """Re-prefill over decoding."""
        return self.reprefill_s / self.decode_s

    @property
    def load(self) -> Workload:
        """The completions as a forecast sees them."""
        return Workload({self.length: NUM_ROWS}, PROMPT_TOKENS, self.interval, NUM_ROWS)


def measured(length: int, interval: int) -> Cell:
    """Decode NUM_ROWS rows to their end, with pushes on the way."""
    policy = Config(hidden_size=64, num_layers=2, num_heads=2, num_kv_heads=2, dtype="float32").build(alphabet="0123456789", seed=0)
    policy.tokenizer.eos_token = policy.module.generation_config.eos_token_id = policy.config.eos_token_id = None
    meter = Meter("generator:0", clock=CpuClock())
    engine = Embedded(slots=NUM_ROWS, kv="reprefill", drift=Drift(rows=0))
    loop = engine.build(policy, control=Truncation(), completion_tokens=length, seed=0, meter=meter)
    text = "0123456789012345"
    ids = tuple(policy.tokenizer.encode(text))
    loop.submit([Request(row, Prompt(f"p{row}", "none", text, ids, ""), 0, 1) for row in range(NUM_ROWS)])
    pushes, costs = [], []
    for step in range(length):
        if step % interval == interval // 2:
            costs += meter.collect()
            loop.take_weights(loop.version + 1, policy.tensors(), between=lambda: None)
            (cost,) = (cost for cost in meter.collect() if cost.activity is Activity.REPREFILL)
            pushes.append((Work(cost.tokens, loop.last_push.reprefill_pairs), cost.seconds))
        loop.step()
    costs += meter.collect()
    return Cell(length, interval, tuple(pushes), sum(cost.seconds for cost in costs if _is_decoding(cost)))


def _is_decoding(cost: Cost) -> bool:
    return cost.activity is Activity.GENERATE


def counted(cell: Cell) -> int:
    """The tokens that the pushes of `cell` must compute anew: of each row its prompt and what it generated but the last."""
    return sum(NUM_ROWS * (PROMPT_TOKENS + step - 1) for step in range(cell.interval // 2, cell.length, cell.interval) if step)


def exponent(xs: list[float], ys: list[float]) -> float:
    """The slope of log y on log x."""
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def forecast(cells: dict[tuple[int, int], Cell], rates: Rates) -> dict[tuple[int, int], float]:
    """Re-prefill over decoding at every length and interval, as one of them alone tells."""
    base = cells[FORECAST_FROM]
    needed = Work(base.work.tokens / NUM_ROWS, base.work.pairs / NUM_ROWS)
    known = Measured(base.load, needed, rates, base.decode_s / (NUM_ROWS * base.length))
    shares = {at: known.at(length=at[0] / base.length, interval=at[1] / base.interval).reprefill_share or 0.0 for at in cells}
    return {at: share / (1.0 - share) for at, share in shares.items()}


def draw(cells: dict[tuple[int, int], Cell], forecasts: dict[tuple[int, int], float], path: Path) -> None:
    """Re-prefill over decoding against the length, a line for each interval."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 4.2), layout="constrained", facecolor="white")
        axes = figure.add_subplot()
        for interval, colour in zip(INTERVALS, COLOURS, strict=True):
            ratios = [cells[length, interval].ratio for length in LENGTHS]
            axes.plot(LENGTHS, ratios, "o", color=colour, label=f"a push every {interval} tokens")
            axes.plot(LENGTHS, [forecasts[length, interval] for length in LENGTHS], color=colour, linewidth=1.4)
        axes.plot(
            *FORECAST_FROM[:1], cells[FORECAST_FROM].ratio, "o", mfc="none", mec="#16202c", ms=11, label="what the lines are forecast from"
        )
        axes.set(xscale="log", yscale="log", xlabel="tokens of a completion", ylabel="re-prefill over decoding, CPU-seconds")
        axes.set_xticks(LENGTHS, [str(length) for length in LENGTHS])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.grid(color="#e4e8ed", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        figure.savefig(path, metadata={"Date": None})


def main(path: Path) -> int:
    """Measure, fit, forecast, draw, print."""
    torch.set_num_threads(1)
    measured(64, 16)  # warm
    cells = {at: measured(*at) for at in product(LENGTHS, INTERVALS)}
    passes = Passes()
    for cell in cells.values():
        for work, seconds in cell.pushes:
            passes.add(work, seconds=seconds)
    rates = passes.rates()
    assert rates is not None, "there were pushes"
    forecasts = forecast(cells, rates)
    print(f"{'L':>5} {'K':>4} {'anew':>8} {'decode s':>9} {'re-prefill s':>12} {'fit s':>7} {'ratio':>7} {'forecast':>8}")
    for (length, interval), cell in cells.items():
        row = (cell.work.tokens, cell.decode_s, cell.reprefill_s, rates.seconds(cell.work), cell.ratio, forecasts[length, interval])
        print(f"{length:5} {interval:4} {row[0]:8.0f} {row[1]:9.3f} {row[2]:12.3f} {row[3]:7.3f} {row[4]:7.3f} {row[5]:8.3f}")
    draw(cells, forecasts, path)
    law = {at: NUM_ROWS * reprefill_of_life(at[0], prompt_tokens=PROMPT_TOKENS, interval_tokens=at[1]).tokens for at in cells}
    many = [cell for cell in cells.values() if len(cell.pushes) >= 4]
    fit_errors = {at: abs(rates.seconds(cell.work) / cell.reprefill_s - 1.0) for at, cell in cells.items() if cell.pushes}
    figures = {
        "tokens_exact": all(cell.work.tokens == counted(cell) for cell in cells.values()),
        "tokens_vs_law": max(abs(cell.work.tokens / law[cell.length, cell.interval] - 1.0) for cell in many),
        "fit_error": max(error for (length, _), error in fit_errors.items() if length >= LONG),
        "fit_error_short": max(error for (length, _), error in fit_errors.items() if length < LONG),
        "forecast_error": max(abs(forecasts[cell.length, cell.interval] / cell.ratio - 1.0) for cell in many),
        "tokens_exponent_L": exponent(list(LENGTHS[2:]), [cells[length, 16].work.tokens for length in LENGTHS[2:]]),
        "tokens_exponent_K": exponent(list(INTERVALS), [cells[1024, interval].work.tokens for interval in INTERVALS]),
        "us_per_token": 1e6 * rates.s_per_token,
        "us_per_pair": 1e6 * rates.s_per_pair,
        "ratio_shortest": cells[64, 16].ratio,
        "ratio_longest": cells[1024, 16].ratio,
    }
    requirements = [
        Requirement("re-prefilled tokens counted exactly", float(figures["tokens_exact"]), least=1.0),
        Requirement("tokens against the law, four pushes and more", figures["tokens_vs_law"], most=0.05),
        Requirement(f"seconds of re-prefill against the fit, from {LONG} tokens on", figures["fit_error"], most=0.35),
    ]
    return finish(requirements, figures)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else FIGURE))
