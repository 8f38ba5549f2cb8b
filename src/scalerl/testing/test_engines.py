"""What every engine keeps: groups that are whole, log-probs that are true under each token's version, and books that say it.

Those that cannot be used here, such as vLLM where it is not installed, are skipped, and say why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
from pydantic import ValidationError

from scalerl.core.errors import UsageError
from scalerl.engines import Engine
from scalerl.objective.length_controls.interruption import Interruption
from scalerl.objective.length_controls.truncation import Truncation
from scalerl.records.cost import Activity
from scalerl.records.rollout import Completion, Group
from scalerl.testing.families import example

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

    from scalerl.testing.engines import Served

ENGINES = {name: example(Engine.family.get(name)) for name in Engine.family.names()}
SLOTS = 16
RAGGED = ("1:", "12+34*5:", "7-8:", "123456789:", "0*0:", "9+9+9:")
TOLERANCE = 1e-4
"""Of a log-prob in nats, in fp32."""
PHRASE = "=-="
INTERRUPTION = Interruption(after_tokens=(3, 6), phrase=PHRASE, answer_tokens=4)
LONG = "12+3*4-" * 40
"""Longer than two blocks of any paged cache, so that keys of an older version would be found and used."""


def as_parameter(name: str) -> ParameterSet:
    """An engine by name, skipped where it cannot be used."""
    error = ENGINES[name].why_unusable()
    return pytest.param(name, marks=() if error is None else pytest.mark.skip(reason=str(error)))


@pytest.fixture(scope="module", params=[as_parameter(name) for name in ENGINES])
def name(request: pytest.FixtureRequest) -> str:
    """The engine."""
    return str(request.param)


@pytest.fixture(scope="module")
def served(name: str) -> Callable[[str], Served]:
    """The engine at work, once for each policy of caches: it may take long to start. One of them interrupts, at a temperature."""
    engines = pytest.importorskip("scalerl.testing.engines", reason="engines need scalerl[train]", exc_type=ImportError)

    @cache
    def at_work(kv: str) -> Served:
        is_special = kv == "reprefill"
        engine = ENGINES[name].model_copy(update={"kv": kv, "slots": SLOTS, "temperature": 0.7 if is_special else 1.0})
        return cast("Served", engines.Served(engine, control=INTERRUPTION if is_special else Truncation()))

    return at_work


@pytest.fixture
def keep(served: Callable[[str], Served]) -> Iterator[Served]:
    """One that keeps caches."""
    yield from idle(served("keep"))


@pytest.fixture
def reprefill(served: Callable[[str], Served]) -> Iterator[Served]:
    """One that computes caches anew."""
    yield from idle(served("reprefill"))


@pytest.fixture
def drain(served: Callable[[str], Served]) -> Iterator[Served]:
    """One that lets completions end first."""
    yield from idle(served("drain"))


@pytest.fixture(params=["keep", "reprefill", "drain"])
def any_kv(request: pytest.FixtureRequest, served: Callable[[str], Served]) -> Iterator[Served]:
    """Each of them."""
    yield from idle(served(request.param))


def idle(engine: Served) -> Iterator[Served]:
    """The engine with its first weights, and with nothing in flight before and after."""
    engine.push()
    engine.costs()
    yield engine
    engine.loop.cancel(range(100))


def completions(groups: list[Group]) -> list[tuple[Group, Completion]]:
    """Every completion with its group."""
    return [(group, completion) for group in groups for completion in group.completions]


def ids(groups: list[Group]) -> dict[int, list[list[int]]]:
    """The tokens of all completions by group."""
    return {group.id: [completion.token_ids.tolist() for completion in group.completions] for group in groups}


def assert_exact(engine: Served, groups: list[Group]) -> None:
    """Every sampled token has the log-prob of a full pass under its version, every inserted one 0."""
    assert groups
    for group, completion in completions(groups):
        np.testing.assert_allclose(completion.log_probs, engine.exact_log_probs(group, completion), atol=TOLERANCE)


def test_groups_come_once_and_whole_and_those_of_a_step_oldest_first(any_kv: Served) -> None:
    """Eight groups of four for sixteen slots; text, indices, budget and versions fit the tokens."""
    submitted = any_kv.requests([*RAGGED, "5*5:", "3:"])
    any_kv.loop.submit(submitted)
    finished: list[Group] = []
    while any_kv.loop.num_in_flight:
        num_before = any_kv.loop.num_in_flight
        step = any_kv.loop.step()
        assert [group.id for group in step] == sorted(group.id for group in step)
        assert any_kv.loop.num_in_flight == num_before - len(step)
        finished += step
    assert sorted(group.id for group in finished) == list(range(8))
    stops = any_kv.policy.stop_ids
    for group, completion in completions(finished):
        assert group.prompt == submitted[group.id].prompt
        assert not stops & set(completion.token_ids[:-1].tolist())
        assert completion.finished == (int(completion.token_ids[-1]) in stops)
        assert len(completion.token_ids) <= any_kv.completion_tokens
        assert completion.version_runs == ((any_kv.loop.version, len(completion.token_ids)),)
        assert completion.text == any_kv.policy.tokenizer.decode(completion.token_ids.tolist(), skip_special_tokens=True)
    assert all([completion.index for completion in group.completions] == list(range(4)) for group in finished)


def test_log_probs_are_those_of_a_full_forward_pass_at_the_temperature(any_kv: Served) -> None:
    """Whatever the model's own generation settings say of temperature, top-k, top-p and penalties."""
    groups = any_kv.finish(any_kv.requests([*RAGGED, LONG]))
    assert_exact(any_kv, groups)
    assert any(len({tuple(completion.token_ids) for completion in group.completions}) > 1 for group in groups)


def test_a_draw_depends_on_prompt_epoch_and_completion_alone(keep: Served) -> None:
    """Not on the order of submission, on neighbours, or on when it comes."""
    submitted = keep.requests(RAGGED)
    first = ids(keep.finish(submitted))
    assert ids(keep.finish(submitted[::-1])) == first
    assert ids(keep.finish(submitted[3:4])) == {3: first[3]}
    assert ids(keep.finish(keep.requests(RAGGED, epoch=1))) != first


def test_keep_goes_on_with_the_keys_of_older_versions(keep: Served) -> None:
    """Over four versions, log-probs are those of an explicit reference that computes each key once."""
    groups = keep.finish(keep.requests([*RAGGED, LONG]), pushes=[(3, 1), (2, 2), (2, 3)])
    for group, completion in completions(groups):
        np.testing.assert_allclose(completion.log_probs, keep.kept_log_probs(group, completion), atol=TOLERANCE)
    spanning = [(group, completion) for group, completion in completions(groups) if len(completion.version_runs) == 4]
    assert spanning
    drift = [np.abs(completion.log_probs - keep.exact_log_probs(group, completion)).max() for group, completion in spanning]
    assert max(drift) > 10 * TOLERANCE, "stale keys are visible in this test, or it would show nothing"


def test_reprefill_is_exact_under_the_version_of_each_token(reprefill: Served) -> None:
    """Over four versions, with prompts admitted in between and interruptions on the way."""
    groups = reprefill.finish(reprefill.requests([*RAGGED, LONG]), pushes=[(2, 1), (1, 2), (1, 3)])
    assert_exact(reprefill, groups)
    assert any(len(completion.version_runs) == 4 for _, completion in completions(groups))
    assert any(completion.num_inserted and len(completion.version_runs) > 1 for _, completion in completions(groups))


def test_drain_ends_what_is_in_flight_under_the_old_weights(drain: Served) -> None:
    """The queue waits, and starts under the new ones."""
    old = drain.loop.version
    drain.loop.submit(drain.requests(RAGGED))
    drained = drain.steps(3) + drain.push(seed=1)
    later = drain.finish()
    assert sorted(group.id for group in [*drained, *later]) == list(range(len(RAGGED)))
    assert {version for _, completion in completions(drained) for version, _ in completion.version_runs} == {old}
    assert {version for _, completion in completions(later) for version, _ in completion.version_runs} == {old + 1}
    assert len(later) == 2, "sixteen slots hold four groups of four"
    assert_exact(drain, [*drained, *later])


def test_versions_never_fall_and_cover_every_token(any_kv: Served) -> None:
    """Run-length coded: neighbours differ, and the numbers sum to the tokens."""
    groups = any_kv.finish(any_kv.requests(RAGGED), pushes=[(2, 1), (1, 2)])
    for _, completion in completions(groups):
        versions = [version for version, _ in completion.version_runs]
        assert versions == sorted(set(versions))
        assert sum(number for _, number in completion.version_runs) == len(completion.token_ids)
    sampled_by = {version for _, completion in completions(groups) for version, _ in completion.version_runs}
    assert len(sampled_by) > 1
    assert max(sampled_by) <= any_kv.loop.version


def test_a4_a_new_request_never_sees_keys_of_older_weights(any_kv: Served) -> None:
    """Neither one that was submitted before the push, nor one with the prompt of a request in flight."""
    any_kv.loop.submit(any_kv.requests([LONG, "1:", "2:", "3:"]))
    finished = any_kv.steps(2)
    any_kv.loop.submit(any_kv.requests([LONG], first=50, epoch=1))
    finished += any_kv.push(seed=1)
    finished += any_kv.finish(any_kv.requests([LONG], first=51, epoch=2))
    fresh = [group for group in finished if group.id >= 50]
    assert [group.first_version for group in fresh] == [any_kv.loop.version] * 2
    assert_exact(any_kv, fresh)


def test_a_push_of_the_same_weights_changes_no_token(any_kv: Served) -> None:
    """Not a draw either: those of a completion go on where they were."""
    submitted = any_kv.requests(RAGGED)
    undisturbed = ids(any_kv.finish(submitted))
    any_kv.loop.submit(submitted)
    finished = any_kv.steps(3) + any_kv.push() + any_kv.steps(1) + any_kv.push()
    assert ids(finished + any_kv.finish()) == undisturbed


def test_an_interruption_inserts_its_phrase_and_later_tokens_follow_it(reprefill: Served) -> None:
    """The phrase is masked, has log-prob 0 and a version, and leaves room for the answer."""
    phrase = list(reprefill.encode(PHRASE))
    groups = reprefill.finish(reprefill.requests(RAGGED))
    interrupted = [completion for _, completion in completions(groups) if completion.num_inserted]
    assert len(interrupted) > len(RAGGED)
    for completion in interrupted:
        (start, *_) = inserted = np.flatnonzero(~completion.trainable).tolist()
        assert inserted == list(range(start, start + len(phrase)))
        assert completion.token_ids[inserted].tolist() == phrase
        assert 3 <= start <= 6
        num_after = len(completion.token_ids) - start - len(phrase)
        assert 1 <= num_after <= 4
        assert completion.finished or num_after == min(4, reprefill.completion_tokens - start - len(phrase))
    for _, completion in completions(groups):
        assert completion.num_inserted or (completion.finished and len(completion.token_ids) <= 6)
    assert_exact(reprefill, groups)


def test_cancelled_groups_are_forgotten_and_the_others_go_on(any_kv: Served) -> None:
    """Whether they wait or are in flight; unknown ones are no error."""
    submitted = any_kv.requests(RAGGED)
    undisturbed = ids(any_kv.finish(submitted))
    any_kv.loop.submit(submitted)
    finished = any_kv.steps(2)
    gone = {0, 2, 5, 77} - {group.id for group in finished}
    any_kv.loop.cancel(gone)
    assert any_kv.loop.num_in_flight == len(RAGGED) - len(finished) - len(gone - {77})
    finished += any_kv.finish()
    assert ids(finished) == {group: tokens for group, tokens in undisturbed.items() if group not in gone}
    assert_exact(any_kv, finished)


def test_an_evaluation_leaves_requests_in_flight_alone(any_kv: Served) -> None:
    """It returns groups in their order, of the weights in use, with draws of its own that repeat."""
    submitted = any_kv.requests(RAGGED)
    undisturbed = ids(any_kv.finish(submitted))
    any_kv.loop.submit(submitted)
    finished, calls = any_kv.steps(2), list[int]()
    evaluated = any_kv.loop.evaluate(submitted[::-1], between=lambda: calls.append(1))
    assert [group.id for group in evaluated] == [request.group for request in submitted[::-1]]
    assert len(calls) >= any_kv.completion_tokens
    assert_exact(any_kv, evaluated)
    assert ids(evaluated) != undisturbed
    assert ids(finished + any_kv.finish()) == undisturbed
    any_kv.push()
    assert ids(any_kv.loop.evaluate(submitted, between=lambda: None)) == ids(evaluated)


def test_a_push_does_not_change_the_weights_of_an_evaluation(any_kv: Served) -> None:
    """It is sampled beside the training requests, and all its tokens are of the version that it began with."""
    frozen = any_kv.loop.version
    held_out = any_kv.requests(RAGGED)
    any_kv.loop.submit(any_kv.requests(RAGGED, epoch=1))
    any_kv.loop.begin_evaluation(held_out)
    evaluated = any_kv.loop.step_evaluation() + any_kv.loop.step_evaluation()
    trained = any_kv.steps(1) + any_kv.push(seed=1)
    while len(evaluated) < len(held_out):
        evaluated += any_kv.loop.step_evaluation()
        trained += any_kv.steps(1)
    trained += any_kv.finish()
    assert sorted(group.id for group in evaluated) == sorted(group.id for group in trained) == list(range(len(RAGGED)))
    assert {version for _, completion in completions(evaluated) for version, _ in completion.version_runs} == {frozen}
    assert_exact(any_kv, evaluated)
    assert {completion.last_version for _, completion in completions(trained)} >= {frozen + 1}


def test_the_probe_is_scored_as_completions_are(any_kv: Served) -> None:
    """Teacher-forced, at the engine's temperature, under the weights in use, whatever is in flight."""
    any_kv.loop.submit(any_kv.requests(RAGGED))
    any_kv.steps(2)
    any_kv.push(seed=4)
    probe = [(any_kv.encode(text[:2]), any_kv.encode(text[2:])) for text in ("1+2=3.", "123", LONG[:40])]
    expected = [any_kv.full_log_probs(*sequence, version=any_kv.loop.version) for sequence in probe]
    any_kv.costs()
    scored = any_kv.loop.score(probe)
    assert scored.dtype == np.float32
    np.testing.assert_allclose(scored, np.concatenate(expected), atol=TOLERANCE)
    cost = any_kv.costs()[Activity.PUSH]
    assert (cost.tokens, cost.detail) == (len(scored), "probe")
    assert cost.flops > 0.0
    assert any_kv.loop.score([]).shape == (0,)


def test_sampled_tokens_and_their_flops_are_booked(any_kv: Served) -> None:
    """Prompts once for a group, each token at its true context; what is computed again is overhead; inserted tokens count as input."""
    groups = any_kv.finish(any_kv.requests(RAGGED))
    cost = any_kv.costs()[Activity.GENERATE]
    flops, expected = any_kv.policy.flops, 0.0
    for group in groups:
        num_prompt = len(group.prompt.token_ids)
        expected += flops.forward(num_tokens=num_prompt, num_pairs=num_prompt * (num_prompt + 1) // 2, num_logits=1)
        for completion in group.completions:
            fed = np.arange(num_prompt + 1, num_prompt + len(completion.token_ids))
            expected += flops.forward(num_tokens=len(fed), num_pairs=int(fed.sum()), num_logits=int(completion.trainable.sum()) - 1)
    assert cost.tokens == sum(int(completion.trainable.sum()) for _, completion in completions(groups))
    assert cost.flops == pytest.approx(expected, rel=1e-3)
    assert cost.seconds > 0.0


def test_an_evaluation_is_booked_apart(keep: Served) -> None:
    """Its tokens, its FLOPs and its seconds."""
    evaluated = keep.loop.evaluate(keep.requests(RAGGED), between=lambda: None)
    costs = keep.costs()
    assert costs[Activity.EVALUATE].tokens == sum(len(completion.token_ids) for _, completion in completions(evaluated))
    assert costs[Activity.EVALUATE].flops > 0.0
    assert costs[Activity.EVALUATE].seconds > 0.0
    assert Activity.GENERATE not in costs


def test_a4_a_push_tells_what_it_met_and_reprefill_books_all_tokens_but_the_last(reprefill: Served) -> None:
    """A prompt of 10 tokens with 2 generated ones: 11 are computed again, the last one is the next step's input."""
    reprefill.loop.submit(reprefill.requests(["123456789:"], num_completions=1))
    assert reprefill.steps(2) == []
    reprefill.costs()
    reprefill.push(seed=1)
    met, cost = reprefill.loop.last_push, reprefill.costs()[Activity.REPREFILL]
    assert (met.num_rows, met.prompt_tokens, met.generated_tokens, met.reprefill_tokens, met.reprefill_pairs) == (1, 10, 1, 11, 66)
    assert cost.tokens == 11
    assert cost.flops == reprefill.policy.flops.forward(num_tokens=11, num_pairs=66, num_logits=0)
    assert cost.seconds > 0.0


def test_keep_and_drain_compute_nothing_again(keep: Served, drain: Served) -> None:
    """Neither seconds nor tokens of re-prefill are booked."""
    for engine in (keep, drain):
        engine.finish(engine.requests(RAGGED), pushes=[(3, 1), (2, 2)])
        assert Activity.REPREFILL not in engine.costs()


@pytest.mark.parametrize("setting", ["top_p", "top_k", "min_p"])
def test_m2_it_cannot_sample_from_a_part_of_the_vocabulary(name: str, setting: str) -> None:
    """Importance weights would be wrong for every token that was cut."""
    with pytest.raises(ValidationError, match=setting):
        Engine.family.get(name).model_validate({setting: 0.9})


def test_what_does_not_fit_is_refused_in_one_sentence(keep: Served) -> None:
    """A group larger than the slots, and a prompt longer than the model has positions for."""
    with pytest.raises(UsageError, match="slots cannot hold a group"):
        keep.loop.submit(keep.requests(["1:"], num_completions=SLOTS + 1))
    with pytest.raises(UsageError, match="a prompt of 600 tokens"):
        keep.loop.submit(keep.requests(["1" * 600]))
    assert keep.loop.num_in_flight == 0
