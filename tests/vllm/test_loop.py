"""The loop around vLLM without vLLM: its starts, its deaths, and what a push does to pieces that wait."""

import copy
import math
from dataclasses import replace

import pytest

from scalerl.accounting.meter import Meter
from scalerl.core.clock import ManualClock
from scalerl.core.errors import LostRoleError, ScalerlError, UsageError
from scalerl.engines import _vllm_line, vllm
from scalerl.engines.vllm import Vllm
from scalerl.objective.length_controls.interruption import Interruption
from scalerl.objective.length_controls.truncation import Truncation
from scalerl.records.cost import Activity
from scalerl.testing.engines import tiny_policy
from tests.engines.tiny import ragged_requests
from tests.vllm.stand_in import StandIn, World, token_at

BUDGET = 6
POLICY = tiny_policy()


@pytest.fixture
def build(monkeypatch):
    monkeypatch.setattr(vllm, "find_spec", lambda name: name)

    def build(world, *, control=None, **settings):
        monkeypatch.setattr(_vllm_line, "VllmProcess", world.start)
        meter = Meter("generator:0", clock=ManualClock())
        loop = Vllm(**{"slots": 16} | settings).build(
            copy.deepcopy(POLICY), control=control or Truncation(), prompt_tokens=20, completion_tokens=BUDGET, seed=0, meter=meter
        )
        loop.meter = meter
        return loop

    return build


@pytest.fixture
def submitted():
    return ragged_requests(POLICY)[:3]


def finish(loop, submitted=()):
    loop.submit(submitted)
    finished = []
    while loop.num_in_flight:
        finished += loop.step()
    return finished


def push(loop):
    calls = []
    finished = loop.take_weights(loop.version + 1, POLICY.tensors(), between=lambda: calls.append(1))
    return finished, len(calls)


def assert_whole(groups, submitted):
    """Every group once, each token that of its place, whatever happened on the way."""
    assert sorted(group.id for group in groups) == [request.group for request in submitted]
    for group in groups:
        start = len(group.prompt.token_ids)
        for completion in group.completions:
            assert completion.token_ids.tolist() == [token_at(place) for place in range(start, start + BUDGET)]
            assert completion.log_probs.tolist() == [-float(place) for place in range(start, start + BUDGET)]


def test_without_vllm_the_remedy_is_told(monkeypatch):
    monkeypatch.setattr(vllm, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"engine\.type: vLLM is not installed; pip install 'scalerl\[vllm\]'"):
        Vllm().build(POLICY, control=Truncation(), completion_tokens=4, seed=0, meter=None)


def test_steps_return_while_vllm_starts_and_a_push_waits_with_signs_of_life(build, submitted):
    loop = build(World(calls_to_start=4))
    loop.submit(submitted)
    assert loop.step() == loop.step() == []
    finished, num_calls = push(loop)
    assert num_calls == 2
    assert_whole(finished + finish(loop), submitted)
    assert {cost.detail for cost in loop.meter.collect() if cost.activity is Activity.LOAD} == {"vLLM"}


@pytest.mark.parametrize("deaths", [[1], [3], [2, 4], [6]])
def test_it_starts_again_and_completions_go_on_from_their_tokens(build, submitted, deaths):
    world = World(deaths=deaths)
    loop = build(world)
    assert_whole(finish(loop, submitted), submitted)
    assert len(world.processes) == 1 + len(deaths)
    # Nothing is sampled twice: each death costs the step that it came in.
    assert len(world.calls) == BUDGET + len(deaths)
    (cost,) = [cost for cost in loop.meter.collect() if cost.activity is Activity.GENERATE]
    assert cost.tokens == 3 * 4 * BUDGET
    assert cost.overhead_flops > 0.0


def test_what_happens_too_often_ends_the_engine_by_name(build, submitted):
    loop = build(World(deaths=[2, 3]), restarts=1)
    with pytest.raises(LostRoleError, match=r"engine: vLLM died \(killed by SIGKILL\)"):
        finish(loop, submitted)


@pytest.mark.parametrize("kv", ["keep", "reprefill", "drain"])
def test_a_death_during_a_push_or_the_probe_loses_nothing(build, submitted, kv):
    for death in range(1, 14):
        loop = build(World(deaths=[death]), kv=kv)
        loop.submit(submitted)
        finished = loop.step() + loop.step() + push(loop)[0]
        scored = loop.score([((3, 4), (5, 6, 7)), ((3,), (5,))])
        assert scored.tolist() == [-2.0, -3.0, -4.0, -1.0]
        finished += finish(loop)
        assert_whole(finished, submitted)
        versions = {version for group in finished for completion in group.completions for version, _ in completion.version_runs}
        assert versions == ({0} if kv == "drain" else {0, 1})


@pytest.mark.parametrize("kv", ["keep", "reprefill"])
def test_a4_what_waits_in_vllm_at_a_push_starts_anew_under_the_salt_of_the_new_weights(build, submitted, kv):
    world = World(room=5)
    loop = build(world, kv=kv)
    loop.submit(submitted)
    loop.step()
    push(loop)
    finish(loop)
    salts = {}
    for step in world.steps:
        for name, salt in step:
            salts.setdefault(name, salt)
    assert list(salts.values()).count("0") == 5, "those that had begun keep their blocks"
    assert len(world.processes[0].aborted) == 7, "the other completions of three groups of four"
    assert set(salts.values()) == {"0", "1"}


def test_a4_a_reprefill_is_told_as_what_vllm_computed(build, submitted, monkeypatch):
    """Of completions that share blocks of a prompt only the first one computes them."""
    token = StandIn.token

    def sharing(self, piece):
        made = token(self, piece)
        return replace(made, num_computed=made.num_computed if piece.name == "0" else min(made.num_computed, 3))

    monkeypatch.setattr(StandIn, "token", sharing)
    loop = build(World(), kv="reprefill")
    loop.submit(submitted)
    loop.step()
    loop.step()
    loop.meter.collect()
    push(loop)
    (cost,) = [cost for cost in loop.meter.collect() if cost.activity is Activity.REPREFILL]
    first = len(submitted[0].prompt.token_ids) + 1
    assert cost.tokens == loop.last_push.reprefill_tokens == first + 11 * 2
    assert cost.flops == POLICY.flops.forward(num_tokens=cost.tokens, num_pairs=loop.last_push.reprefill_pairs, num_logits=0)


def test_an_interrupted_completion_goes_on_as_a_new_piece(build, submitted):
    world = World()
    loop = build(world, control=Interruption(after_tokens=(2, 2), phrase="=-", answer_tokens=2))
    for group in finish(loop, submitted):
        for completion in group.completions:
            assert completion.trainable.tolist() == [True, True, False, False, True, True]
            assert completion.log_probs[2:4].tolist() == [0.0, 0.0]
    assert len(world.processes[0].aborted) == 12
    (cost,) = [cost for cost in loop.meter.collect() if cost.activity is Activity.GENERATE]
    assert cost.tokens == 12 * 4, "inserted tokens are not sampled ones"


def test_logits_that_are_not_finite_are_told(build, submitted, monkeypatch):
    loop = build(World())
    token = StandIn.token
    monkeypatch.setattr(StandIn, "token", lambda self, piece: replace(token(self, piece), log_prob=math.nan))
    with pytest.raises(ScalerlError, match="version 0 has logits that are not finite"):
        finish(loop, submitted)
