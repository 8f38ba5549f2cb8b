"""The blocking halves: room, outbox and what a push brings over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalerl.records.cost import Activity
from scalerl.records.roles import Sampled
from scalerl.runtimes._weights import MemoryFile
from tests.runtimes.fakes import NUM_BYTES, batch, fake_generator, fake_trainer, request


def ids(sampled: Sampled | None) -> list[int]:
    return [] if sampled is None else [group.id for group in sampled.groups]


def test_it_says_what_it_waits_for() -> None:
    role, _ = fake_generator()
    assert role.waits_for == "buffer full"
    role.allow(1)
    assert role.waits_for == "no requests"
    role.submit([request(0)])
    assert role.waits_for == ""


def test_groups_beyond_the_room_wait_in_order_and_nothing_is_decoded_meanwhile() -> None:
    role, engine = fake_generator()
    role.submit([request(group, num_tokens=1) for group in range(3)] + [request(3, num_tokens=2)])
    role.allow(1)
    role.step()
    assert ids(role.sampled()) == [0]
    assert role.waits_for == "buffer full"
    role.allow(1)
    assert ids(role.sampled()) == [1]
    role.allow(5)
    assert ids(role.sampled()) == [2]
    assert role.waits_for == ""
    assert engine.num_steps == 1


@given(st.lists(st.one_of(st.integers(1, 3), st.sampled_from(["step", "send"])), max_size=30))
def test_never_more_groups_leave_than_were_allowed_and_none_is_lost(moves: list[int | str]) -> None:
    role, _ = fake_generator()
    role.submit([request(group, num_tokens=1 + group % 3) for group in range(8)])
    allowed, left = 0, []
    for move in moves:
        if isinstance(move, int):
            role.allow(move)
            allowed += move
        elif move == "send":
            left += ids(role.sampled())
        elif not role.waits_for:
            role.step()
        assert len(left) <= allowed
    role.allow(8)
    while len(left) < 8:
        left += ids(role.sampled())
        if not role.waits_for:
            role.step()
    assert sorted(left) == list(range(8))


def test_an_evaluation_needs_no_room_and_comes_back_whole_in_the_order_of_its_requests() -> None:
    role, engine = fake_generator()
    role.submit([request(0, num_tokens=2)])
    role.begin_evaluation([request(0, num_tokens=3), request(1, num_tokens=1), request(2, num_tokens=2)])
    assert role.waits_for == ""
    role.step()
    role.step()
    assert role.sampled() is None, "it is not complete"
    assert engine.num_steps == 0, "there is no room for training groups"
    role.allow(1)
    role.step()
    told = role.sampled()
    assert told is not None
    assert [group.id for group in told.evaluated] == [0, 1, 2]
    assert told.groups == ()
    assert (engine.num_steps, role.waits_for) == (1, "")
    role.step()
    told = role.sampled()
    assert told is not None
    assert (ids(told), told.evaluated, role.waits_for) == ([0], (), "buffer full")


def test_pushes_between_its_steps_do_not_change_what_an_evaluation_is_of() -> None:
    trainer, (generator, _) = fake_trainer(), fake_generator()
    generator.begin_evaluation([request(0, num_tokens=2)])
    generator.step()
    trainer.train(batch())
    generator.take_weights(1, trainer.publish_weights().message)
    generator.step()
    told = generator.sampled()
    assert told is not None
    assert [group.first_version for group in told.evaluated] == [0]
    generator.begin_evaluation([request(0, num_tokens=1)])
    generator.step()
    told = generator.sampled()
    assert told is not None
    assert [group.first_version for group in told.evaluated] == [1]


def test_a_cancelled_group_does_not_leave_even_if_it_is_finished() -> None:
    role, _ = fake_generator()
    role.submit([request(group, num_tokens=1 + group) for group in range(3)])
    role.allow(1)
    role.step()
    role.cancel({0, 1})
    assert role.sampled() is None
    role.step()
    role.step()
    assert ids(role.sampled()) == [2]


def test_signs_of_life_are_given_while_requests_drain_before_a_push() -> None:
    signs: list[int] = []
    trainer, (generator, engine) = fake_trainer(), fake_generator(between=lambda: signs.append(engine.version))
    trainer.train(batch())
    generator.take_weights(1, trainer.publish_weights().message)
    assert signs == [0]


@pytest.mark.parametrize("has_file", [True, False])
def test_a_push_brings_the_weights_over_and_both_sides_score_the_probe_alike(has_file: bool) -> None:
    file = MemoryFile.create() if has_file else None
    trainer, (generator, engine) = fake_trainer(file=file), fake_generator(file=file)
    for version in (1, 2, 3):
        trainer.train(batch())
        published = trainer.publish_weights()
        assert (published.message is None) == has_file
        taken = generator.take_weights(version, published.message)
        assert engine.weights == bytes([version]) * NUM_BYTES
        assert taken.version == published.handover.version == version
        assert taken.probe_log_probs.tolist() == published.handover.probe_log_probs.tolist() == [version] * 8
        assert {cost.activity for cost in (*taken.costs, *published.handover.costs)} == {Activity.PUSH}
    if file is not None:
        file.close()
