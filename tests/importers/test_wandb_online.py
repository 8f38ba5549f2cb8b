"""A run on a Weights & Biases server, which a stand-in for `wandb.Api` plays: no server is asked."""

import sys

import pytest

from scalerl.core.errors import DataError, UsageError
from scalerl.core.units import TOKENS
from scalerl.importers import Choice, read_curves


class Run:
    name = "lucky-frog-7"

    def scan_history(self):
        """Sparse rows, as the server gives them when no keys are named."""
        yield {"_step": 0, "train/global_step": 1, "train/reward": 0.2, "train/num_tokens": 100, "histogram": {"values": [1, 2]}}
        yield {"_step": 1, "train/global_step": 1, "eval/reward": 0.3, "train/reward": None}
        yield {"_step": 2, "train/global_step": 2, "train/reward": 0.4, "train/num_tokens": 200}
        yield {"_step": 3, "train/global_step": 2, "eval/reward": 0.5}


@pytest.fixture
def server(monkeypatch):
    """The addresses that were asked for."""
    wandb = pytest.importorskip("wandb")
    asked = []

    class Api:
        def run(self, address):
            asked.append(address)
            if address.endswith("/absent"):
                raise ValueError(f"Could not find run <Run {address}\n (not found)>")
            if address.endswith("/secret"):
                raise wandb.errors.CommError("permission denied")
            return Run()

    monkeypatch.setattr(wandb, "Api", Api)
    return asked


def test_every_row_of_the_run_is_read(server):
    (curve,) = read_curves("wandb://acme/grpo/3fk1x")
    assert server == ["acme/grpo/3fk1x"]
    assert (curve.name, curve.metric, curve.axis) == ("lucky-frog-7", "eval/reward", TOKENS)
    assert (curve.compute.tolist(), curve.reward.tolist()) == ([100, 200], [0.3, 0.5])
    (training,) = read_curves("wandb://acme/grpo/3fk1x/", choice=Choice(y="train/reward"))
    assert training.reward.tolist() == [0.2, 0.4]


@pytest.mark.parametrize(("run", "reason"), [("absent", "Could not find run"), ("secret", "permission denied")])
def test_what_the_server_refuses_is_one_sentence(server, run, reason):
    with pytest.raises(
        DataError, match=rf"wandb://acme/grpo/{run}: the server does not give this run \({reason}.*\); check it, and wandb login"
    ):
        read_curves(f"wandb://acme/grpo/{run}")


@pytest.mark.parametrize("address", ["wandb://", "wandb://acme/grpo", "wandb://a/b/c/d"])
def test_an_address_without_a_run(server, address):
    with pytest.raises(UsageError, match="this is no address of a run; write wandb://ENTITY/PROJECT/RUN"):
        read_curves(address)
    assert server == []


def test_the_package_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(
        UsageError, match=r"needs the package wandb, which is not installed; install it with: pip install 'scalerl\[wandb\]'"
    ):
        read_curves("wandb://acme/grpo/3fk1x")
