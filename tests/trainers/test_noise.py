"""Gradient noise: estimates against planted ones, and that measuring changes no gradient."""

import numpy as np
import pytest
import torch

from scalerl.trainers._noise import halves, measured
from scalerl.trainers._rows import Row
from tests.trainers.tiny import even_batch, ragged_batch, tiny_policy

DIMENSIONS, PROMPTS, GROUP = 40, 12, 8
BETWEEN_SD, WITHIN_SD = 0.7, 1.6


def nothing():
    pass


def planted(seed):
    """Rows whose gradients are a signal of length 1 a dimension, one part of each prompt and one of each row."""
    rng = np.random.default_rng(seed)
    rows, of_row = [], {}
    for prompt in range(PROMPTS):
        of_prompt = 1.0 + BETWEEN_SD * rng.normal(size=DIMENSIONS)
        for _ in range(GROUP):
            row = Row.of([3], [4, 5])
            row = Row(**{**{name: getattr(row, name) for name in Row.__slots__}, "group": prompt})
            rows.append(row)
            of_row[id(row)] = (of_prompt + WITHIN_SD * rng.normal(size=DIMENSIONS)) / (PROMPTS * GROUP)
    return rows, of_row


def test_noise_and_signal_are_those_that_were_planted():
    found = []
    for seed in range(200):
        rows, of_row = planted(seed)
        total, metrics = measured(rows, gradients=lambda some, of_row=of_row: {"w": torch.tensor(sum(of_row[id(row)] for row in some))})
        assert torch.allclose(total["w"], torch.tensor(sum(of_row.values())))
        found.append([metrics[name] for name in ("gradient_noise", "gradient_noise_within", "gradient_signal")])
    within = DIMENSIONS * WITHIN_SD**2 / (PROMPTS * GROUP)
    between = DIMENSIONS * BETWEEN_SD**2 / PROMPTS
    error = 3.5 * np.std(found, axis=0) / np.sqrt(len(found))
    assert (np.abs(np.mean(found, axis=0) - [within + between, within, DIMENSIONS]) < error).all()
    assert (error < 0.05 * np.array([within + between, within, DIMENSIONS])).all()


def test_halves_are_of_one_prompt_and_hold_every_row_once():
    rows, _ = planted(0)
    parts = [part for pair in halves(rows[::-1]) for part in pair]
    assert sorted(id(row) for part in parts for row in part) == sorted(map(id, rows))
    assert all(len({row.group for row in part}) == 1 for part in parts)


def test_measuring_changes_no_gradient(build, gradients):
    metrics = {}
    for every in (None, 1):
        learner = build(tiny_policy(), trainer={"noise_every_steps": every})
        metrics = learner.train(ragged_batch(), between=nothing)
    plain, in_pieces = gradients
    scale = max(gradient.abs().max() for gradient in plain.values())
    assert all((in_pieces[name] - gradient).abs().max() <= 1e-5 * scale for name, gradient in plain.items())
    assert metrics["gradient_noise"] > 0.0
    norm = metrics["grad_norm"]
    assert metrics["gradient_noise"] + metrics["gradient_signal"] == pytest.approx(norm**2, rel=1e-4)


def test_it_is_measured_as_often_as_asked_for(build):
    learner = build(tiny_policy(), trainer={"noise_every_steps": 2})
    seen = ["gradient_noise" in learner.train(even_batch(seed), between=nothing) for seed in range(4)]
    assert seen == [True, False, True, False]


def test_groups_of_one_have_noise_without_a_part_within_and_one_prompt_has_none():
    rows, of_row = planted(0)
    ones = rows[::GROUP]
    _, metrics = measured(ones, gradients=lambda some: {"w": torch.tensor(sum(of_row[id(row)] for row in some))})
    assert metrics.keys() == {"gradient_noise", "gradient_signal"}
    assert metrics["gradient_noise"] > 0.0
    _, metrics = measured(rows[:GROUP], gradients=lambda some: {"w": torch.tensor(sum(of_row[id(row)] for row in some))})
    assert metrics == {}
