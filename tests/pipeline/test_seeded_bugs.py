"""The simulation finds what it is there for: bugs that are put into the loop on purpose, one at a time."""

from __future__ import annotations

import inspect
import sys
import textwrap

import pytest

from scalerl.pipeline.orchestrator import Orchestrator
from scalerl.pipeline.prompt_queue import PromptQueue
from scalerl.pipeline.simulation import Report, drawn, failure
from scalerl.pipeline.simulation.__main__ import simplest

BUGS = {
    "an off-by-one in the age bound": (Orchestrator, "_may_leave_behind", "self.settings.k for", "self.settings.k + 1 for"),
    "a forgotten slot": (Orchestrator, "_collect", "self._granted -= 1", "pass"),
    "a cursor saved too early": (PromptQueue, "state", "sorted([*self._open, *self._again])", "self._again"),
    "a group trained on twice after a resume": (PromptQueue, "settle", "self._open.remove(turn)", "pass"),
    "a prompt lost when its group is given up": (PromptQueue, "give_back", "self._again.append(turn)", "pass"),
    "a push skipped": (Orchestrator, "_pushes_now", "if self._pushed_version == self.version", "if self.version % 3 == 2"),
    "a doubled message taken for a new one": (
        Orchestrator,
        "_collect",
        "outstanding is None or outstanding.place is not Place.IN_FLIGHT",
        "outstanding is None",
    ),
    "a refill that gives no slot back": (Orchestrator, "_grade", "self._settle(group.id, Place.FILTERED, by=refilled.name())", "pass"),
    "a version evaluated under another's name": (Orchestrator, "_request_evaluation", "self._pushed_version, self", "self.version, self"),
    "a cost that is in no event": (Orchestrator, "_take_step", "costs += published.costs", "pass"),
    "a cost told twice": (Orchestrator, "_save", "Spent(costs=costs)", "Spent(costs=costs + costs)"),
    "a checkpoint encoded after it has been written": (
        Orchestrator,
        "_save",
        "self.step, encoded",
        "self.step, msgspec.json.encode(state)",
    ),
    "groups settled since the last step that a checkpoint forgets": (Orchestrator, "_save", "untold=self._untold", "untold=Untold()"),
    "the youngest groups first": (Orchestrator, "_oldest", "groups[: self", "groups[::-1][: self"),
    "groups dropped that are not too old": (Orchestrator, "_drop_stale", "> self.settings.k", ">= self.settings.k"),
    "a group that a new generator is not asked for": (Orchestrator, "_begin_anew", "self._in_flight()", "self._in_flight()[1:]"),
    "a straggler that waits for room": (Orchestrator, "_admit", "int(self._held)", "0"),
    # Found by the simulation when they were there.
    "a batch cut short while a generator starts": (Orchestrator, "_next_batch", " and not self._is_restarting", ""),
    "an evaluation that comes twice": (Orchestrator, "_collect", " and self._is_new(sampled.evaluated)", ""),
    "a version evaluated twice": (Orchestrator, "_evaluate", "if self._last_evaluated == self._pushed_version:", "if False:"),
    "an evaluation that fell due without a generator": (
        Orchestrator,
        "_save",
        " or (self._lost is not None and self._evaluation_is_due())",
        "",
    ),
    "steps without a generator": (Orchestrator, "_train", "self._check_generator()", "pass"),
}


def put_in(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, line: str, wrong: str) -> None:
    """Replace part of a method's source."""
    source = textwrap.dedent(inspect.getsource(getattr(owner, method)))
    assert source.count(line) == 1, f"{method} holds {line!r} once"
    scope: dict[str, object] = {}
    exec(source.replace(line, wrong), vars(sys.modules[owner.__module__]), scope)
    monkeypatch.setattr(owner, method, scope[method])


@pytest.mark.parametrize("bug", BUGS)
def test_each_bug_is_found_within_the_seeds_of_make_test(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put_in(monkeypatch, *BUGS[bug])
    seed, broken = next((seed, broken) for seed in range(2000) if (broken := failure(drawn(seed))) is not None)
    print(f"{bug}: scenario {seed}, {broken}")


def test_a_scenario_that_breaks_replays_event_by_event(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in(monkeypatch, *BUGS["an off-by-one in the age bound"])
    reports = Report(), Report()
    seed = next(seed for seed in range(2000) if failure(drawn(seed)) is not None)
    first, second = (failure(drawn(seed), report=report) for report in reports)
    assert first is not None
    assert first == second
    assert reports[0].events == reports[1].events


def test_a_replay_tells_what_a_failure_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in(monkeypatch, *BUGS["a group that a new generator is not asked for"])
    scenario, broken = next((one, broken) for one in map(drawn, range(2000)) if (broken := failure(one)) is not None)
    without, still_broken, needed = simplest(scenario, broken)
    assert needed
    assert any(name.startswith("loss of the generator at turn") for name in needed)
    assert still_broken == "Stuck: "
    assert len(without) + len(needed) == len(list(scenario.simplified()))
