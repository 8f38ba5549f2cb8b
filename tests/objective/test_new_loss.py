"""Adding a loss is one file plus nothing: somebody else's package holds it, a recipe selects it by name, and it trains."""

import pytest

from scalerl.accounting.meter import Meter
from scalerl.core.clock import ManualClock
from scalerl.objective import Objective
from scalerl.trainers.single import Single
from tests.plugins import install
from tests.trainers.tiny import even_batch, ragged_batch, tiny_policy

LOUDER = '''
"""REINFORCE, louder: J_it = factor A_i log pi(y_it)."""

from pydantic import Field

from scalerl.objective.losses import Loss
from scalerl.objective.ratios import own_tokens


class Louder(Loss):
    """Every gradient times `factor`."""

    factor: float = Field(default=2.0, gt=0.0)
    """What the gradient is multiplied by."""

    def objective(self, log_probs, behaviour, advantages, mask):
        """factor A_i log pi(y_it), (N, T)."""
        log_probs, advantages = own_tokens(mask, log_probs, advantages)
        return self.factor * advantages * log_probs
'''


@pytest.fixture
def louder(tmp_path, monkeypatch):
    """A package with the one file, installed."""
    files, points = {"losses/louder.py": LOUDER}, {"scalerl.losses": "guest.losses"}
    install(tmp_path, "guest", files=files, entry_points=points, monkeypatch=monkeypatch)


def trained(loss, *, num_steps: int = 3) -> list[dict]:
    """Metrics of a few steps of the tiny policy with a loss as a recipe writes it."""
    objective = Objective.model_validate({"loss": loss, "advantage": "centred", "aggregation": "token"})
    settings = {"optimizer": {"learning_rate": 1e-3, "warmup_steps": 0}, "micro_batch_tokens": 32}
    learner = Single.model_validate(settings).build(
        tiny_policy(), objective=objective, temperature=1.0, meter=Meter("trainer:0", clock=ManualClock())
    )
    batches = [ragged_batch(), *(even_batch(seed) for seed in range(num_steps - 1))]
    metrics = [learner.train(batch, between=lambda: None) for batch in batches]
    assert learner.version == num_steps
    return metrics


def test_one_file_in_somebody_elses_package_trains(louder):
    """Its first gradient is REINFORCE's times its factor, from the same policy and batch."""
    mine, plain = trained({"type": "louder", "factor": 3.0}), trained("reinforce")
    assert all(step["skipped"] == 0.0 and step["grad_norm"] > 0.0 for step in mine)
    assert mine[0]["loss"] == pytest.approx(3.0 * plain[0]["loss"], rel=1e-5)
    assert mine[0]["grad_norm"] == pytest.approx(3.0 * plain[0]["grad_norm"], rel=1e-5)
