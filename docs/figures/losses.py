"""Draws the figures of docs/losses/ and writes the tables of its pages: `make figures`.

A loss's weight is what its gradient multiplies A grad log pi by, here for a completion of one token, for which the ratios of
tokens and of completions are the same. All numbers come from the losses themselves.
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from scalerl.objective.losses import Loss
from scalerl.objective.losses.gspo import Gspo
from scalerl.objective.losses.ppo import Ppo

PAGES = Path(__file__).parents[1] / "losses"
SHOWN = {"ppo": Ppo(dual_clip=3.0)}
"""What is drawn where the default would show nothing new."""
RATIOS = (0.2, 0.4, 0.7, 0.9, 1.0, 1.1, 1.3, 2.5, 4.0, 8.0)
NEAR_ONE = (0.99, 0.996, 0.998, 1.0, 1.002, 1.004, 1.006, 1.01)
SIGNS = ((1.0, "A > 0", "#1f5fbf", "-"), (-1.0, "A < 0", "#d9660b", "--"))
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "scalerl", "font.family": "sans-serif", "font.size": 9.0}


def names() -> list[str]:
    """The losses of this package, those of plug-ins left out."""
    return [name for name, module in Loss.family.modules().items() if module.startswith("scalerl.")]


def shown(name: str) -> Loss:
    """The loss with the settings that its page shows."""
    loss: Loss = SHOWN.get(name) or Loss.family.select(name)
    return loss


def weights(loss: Loss, ratios: np.ndarray, *, advantage: float) -> np.ndarray:
    """dJ / d log pi over A at each of `ratios`, each a completion of one token."""
    log_probs = torch.tensor(np.log(ratios)[:, None], requires_grad=True)
    objective = loss.objective(
        log_probs, torch.zeros_like(log_probs), torch.full_like(log_probs, advantage), torch.ones_like(log_probs) > 0
    )
    (gradient,) = torch.autograd.grad(objective.sum(), log_probs)
    return gradient[:, 0].numpy() / advantage + 0.0  # no minus before a zero


def tables(name: str) -> str:
    """The page's two tables in Markdown: settings with their defaults, and weights."""
    loss = shown(name)
    fields = type(loss).model_fields.items()
    settings = [f"| `{key}` | {_plain(field.default)} | {field.description} |" for key, field in fields]
    lines = ["| setting | default | |", "|---|---|---|", *settings, ""] if settings else []
    ratios = np.array(NEAR_ONE if isinstance(loss, Gspo) else RATIOS)
    lines += [f"| ratio | {' | '.join(f'{ratio:g}' for ratio in ratios)} |", "|---" * (len(ratios) + 1) + "|"]
    for advantage, label, _, _ in SIGNS:
        row = (f"{weight:.4g}" for weight in weights(loss, ratios, advantage=advantage))
        lines.append(f"| weight, {label} | {' | '.join(row)} |")
    return "\n".join(lines)


def draw(name: str) -> None:
    """Write the loss's weight against the ratio as docs/losses/NAME.svg."""
    loss = shown(name)
    reach = 0.012 if isinstance(loss, Gspo) else np.log(8.5)
    ratios = np.exp(np.linspace(-reach, reach, 341))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.2, 2.4), layout="constrained")
        axes = figure.add_subplot()
        for advantage, label, colour, dashes in SIGNS:
            axes.plot(ratios, weights(loss, ratios, advantage=advantage), color=colour, linestyle=dashes, label=label)
        axes.axhline(1.0, color="#596676", linewidth=0.6, linestyle=":")
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks([0.99, 0.995, 1.0, 1.005, 1.01] if isinstance(loss, Gspo) else [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}"))
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel("ratio of pi to pi_gen")
        axes.set_ylabel("weight of A grad log pi")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        figure.savefig(PAGES / f"{name}.svg", metadata={"Date": None, "Description": caption(name)})


def caption(name: str) -> str:
    """The settings that a figure was drawn with, as they stand in it."""
    return ", ".join(f"{key} {value}" for key, value in shown(name).selection().items())


def fill(name: str) -> None:
    """Put the tables into the loss's page, between its two marks."""
    page = PAGES / f"{name}.md"
    page.write_text(re.sub(r"(<!-- tables -->\n).*?(<!-- end -->)", rf"\1\n{tables(name)}\n\n\2", page.read_text(), flags=re.DOTALL))


def _plain(default: object) -> str:
    return "none" if default is None else f"{default}"


def main() -> None:
    """Every figure and every table."""
    for name in names():
        draw(name)
        fill(name)


if __name__ == "__main__":
    main()
