"""What the engine's tests share."""

import pytest
import torch

from scalerl.accounting.meter import Meter
from scalerl.core.clock import ManualClock
from scalerl.engines.embedded import Embedded
from scalerl.objective.length_controls.truncation import Truncation
from tests.engines.tiny import tiny_policy


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def policy():
    return tiny_policy()


@pytest.fixture
def meter():
    return Meter("generator:0", clock=ManualClock())


@pytest.fixture
def build(meter):
    """The embedded loop on a policy; what is not said is the default of these tests."""

    def build(policy, *, control=None, completion_tokens=12, seed=0, **settings):
        engine = Embedded(**{"slots": 16, "drift": {"rows": 0}} | settings)
        return engine.build(policy, control=control or Truncation(), completion_tokens=completion_tokens, seed=seed, meter=meter)

    return build
