"""What the trainers' tests share."""

import pytest
import torch

from scalerl.accounting.meter import Meter
from scalerl.core.clock import ManualClock
from scalerl.objective import Objective
from scalerl.objective.advantages.centred import Centred
from scalerl.objective.aggregations.prompt import Prompt
from scalerl.objective.losses.cispo import Cispo
from scalerl.trainers._optimizer import MasterAdamW
from scalerl.trainers.single import Single
from tests.trainers.tiny import tiny_policy


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def policy():
    return tiny_policy()


@pytest.fixture
def meter():
    return Meter("trainer:0", clock=ManualClock())


@pytest.fixture
def build(meter):
    """The single trainer on a policy; what is not said is the default of these tests."""

    def build(policy, *, temperature=1.0, objective=None, trainer=None, **optimizer):
        settings = {"optimizer": {"learning_rate": 1e-3, "warmup_steps": 0} | optimizer, "micro_batch_tokens": 10_000}
        ingredients = {"advantage": Centred(), "aggregation": Prompt(), "loss": Cispo(cap=1.5)} | (objective or {})
        single = Single(**settings | (trainer or {}))
        return single.build(policy, objective=Objective(**ingredients), temperature=temperature, meter=meter)

    return build


@pytest.fixture
def gradients(monkeypatch):
    """The gradients of each update, by name, before they are clipped."""
    seen = []
    update = MasterAdamW.update

    def watched(self, learning_rate, **rest):
        seen.append({name: master.grad.clone() for name, master in self._masters.items()})
        return update(self, learning_rate, **rest)

    monkeypatch.setattr(MasterAdamW, "update", watched)
    return seen
