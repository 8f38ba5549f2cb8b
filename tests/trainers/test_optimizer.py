"""AdamW against its equation in NumPy, and the master copies of low-precision weights."""

import math

import numpy as np
import pytest
import torch
from torch.nn import Parameter

from scalerl.trainers._optimizer import MasterAdamW

GRADIENTS = [np.array([[0.3, -0.4], [0.0, 1.2]]), np.array([[-2.0, 0.1], [0.7, 0.3]]), np.array([[0.1, 0.1], [-0.1, 0.2]])]


def test_adamw_is_its_equation():
    beta_1, beta_2, eps, decay, clip = 0.9, 0.95, 1e-15, 0.1, 1.0
    rates = [0.01, 0.02, 0.03]
    matrix, gain = Parameter(torch.ones(2, 2, dtype=torch.float64)), Parameter(torch.ones(2, dtype=torch.float64))
    optimizer = MasterAdamW([("m", matrix), ("g", gain)], betas=(beta_1, beta_2), eps=eps, weight_decay=decay, clip_norm=clip)
    weights = np.ones(6)
    mean, square = np.zeros(6), np.zeros(6)
    for step, (rate, gradient) in enumerate(zip(rates, GRADIENTS, strict=True), 1):
        flat = np.concatenate([gradient.ravel(), gradient[0]])
        matrix.grad, gain.grad = torch.tensor(gradient), torch.tensor(gradient[0])

        norm = optimizer.update(rate)

        assert norm == pytest.approx(np.linalg.norm(flat))
        flat = flat * min(1.0, clip / np.linalg.norm(flat))
        mean = beta_1 * mean + (1 - beta_1) * flat
        square = beta_2 * square + (1 - beta_2) * flat**2
        # The matrix decays, the gain does not.
        weights = weights * (1 - rate * np.array([decay] * 4 + [0.0] * 2))
        weights = weights - rate * (mean / (1 - beta_1**step)) / (np.sqrt(square / (1 - beta_2**step)) + eps)
        assert torch.cat([matrix.detach().flatten(), gain.detach()]).numpy() == pytest.approx(weights, rel=1e-6)
        assert matrix.grad is None


def test_steps_too_small_for_bf16_add_up():
    body = Parameter(torch.full((2, 2), 1.0, dtype=torch.bfloat16))
    optimizer = MasterAdamW([("w", body)], weight_decay=0.0)
    for _ in range(20):
        body.grad = torch.ones_like(body)
        optimizer.absorb()
        optimizer.update(1e-3)
    # Twenty steps of .001; one alone is a quarter of what bf16 can tell from 1.
    assert optimizer.tensors()["w.master"].flatten().tolist() == pytest.approx([0.98] * 4, rel=1e-4)
    assert body.flatten().tolist() == pytest.approx([0.98] * 4, rel=2**-8)


def test_gradients_of_micro_batches_are_summed_in_fp32():
    body = Parameter(torch.ones(1, 1, dtype=torch.bfloat16))
    optimizer = MasterAdamW([("w", body)], clip_norm=1e9)
    for gradient in (256.0, 1.0, 1.0):
        body.grad = torch.full_like(body, gradient)
        optimizer.absorb()
    assert optimizer.update(0.0) == 258.0, "in bf16, 256 + 1 is 256"


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_is_no_step(poison):
    weight = Parameter(torch.ones(2, 2))
    optimizer = MasterAdamW([("w", weight)])
    weight.grad = torch.full((2, 2), 0.5)
    optimizer.update(0.1)
    before = {name: tensor.clone() for name, tensor in optimizer.tensors().items()} | {"w": weight.detach().clone()}
    weight.grad = torch.tensor([[1.0, poison], [1.0, 1.0]])
    assert not math.isfinite(optimizer.update(0.1))
    after = optimizer.tensors() | {"w": weight.detach()}
    assert all(tensor.equal(after[name]) for name, tensor in before.items())
