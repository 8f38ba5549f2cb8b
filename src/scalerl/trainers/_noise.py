"""Gradient noise: how much of a batch's gradient is chance, and whether more prompts or more completions would help.

The gradient of a batch of P prompts is a sum of g_p, and g_p one of halves a and b of the prompt's completions. With
n = n_a + n_b rows, all unbiased but for what a shared baseline couples:

    noise    tr = P var(g_p),  var(g_p) = (sum |g_p|^2 - |G|^2 / P) / (P - 1)          of the batch's gradient G
    signal   |G|^2 - tr                                                                of its expectation
    within   P mean_p n |g_a / n_a - g_b / n_b|^2 / (1 / n_a + 1 / n_b)                the part that more completions divide

P noise / signal is the number of prompts at which both are equal, the critical batch size of arXiv 1812.06162: larger
batches than that buy little. Means over many steps are to be taken of noise and signal, and not of their quotient. A batch
of one prompt says nothing, and groups of one nothing of what is within.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from torch import Tensor

from scalerl.trainers._rows import Row

Gradients = dict[str, Tensor]


def halves(rows: Sequence[Row]) -> Iterator[tuple[list[Row], list[Row]]]:
    """Every second row of each prompt, and the others; prompts with one row have none to compare."""
    for _, members in groupby(sorted(rows, key=lambda row: row.group), key=lambda row: row.group):
        group = list(members)
        yield group[::2], group[1::2]


def measured(rows: Sequence[Row], *, gradients: Callable[[Sequence[Row]], Gradients]) -> tuple[Gradients, dict[str, float]]:
    """The gradient of all rows, and its noise; `gradients` are those of some rows."""
    total: Gradients = {}
    num_prompts, num_split = 0, 0
    of_prompts, within = 0.0, 0.0
    for first, second in halves(rows):
        prompt = gradients(first)
        if second:
            other = gradients(second)
            within += _within(prompt, len(first), other, len(second))
            num_split += 1
            prompt = _sum(prompt, other)
        num_prompts += 1
        of_prompts += _square(prompt)
        total = _sum(total, prompt) if total else prompt
    if num_prompts < 2:
        return total, {}
    noise = num_prompts * (of_prompts - _square(total) / num_prompts) / (num_prompts - 1)
    metrics = {"gradient_noise": noise, "gradient_signal": _square(total) - noise}
    return total, metrics | ({"gradient_noise_within": num_prompts * within / num_split} if num_split else {})


def _within(first: Gradients, num_first: int, second: Gradients, num_second: int) -> float:
    difference = {name: tensor / num_first - second[name] / num_second for name, tensor in first.items()}
    return (num_first + num_second) * _square(difference) / (1.0 / num_first + 1.0 / num_second)


def _sum(first: Gradients, second: Gradients) -> Gradients:
    return {name: tensor + second[name] for name, tensor in first.items()}


def _square(gradients: Gradients) -> float:
    return sum(tensor.double().square().sum().item() for tensor in gradients.values())
