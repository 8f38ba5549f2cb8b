"""The lineage of a simulated run: what the events say that still count, which groups are settled, and what a queue must then hold."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache

from scalerl.core.random import permutation, stream_key
from scalerl.pipeline.prompt_queue import QueueState
from scalerl.pipeline.simulation.scenario import Scenario
from scalerl.records.events import GroupFinished

Visit = tuple[int, str]
"""(epoch, prompt)"""


@dataclass(slots=True)
class Lineage:
    """What the events say that still count."""

    step: int = 0
    version: int = 0
    finished: dict[int, GroupFinished] = field(default_factory=dict)
    settled: set[int] = field(default_factory=set)
    visits: set[Visit] = field(default_factory=set)
    """Those of the settled groups."""
    counts: dict[str, list[tuple[int, int, int, int]]] = field(default_factory=dict)
    """(step that told, passed, graded, epoch) of the trained and filtered groups, by prompt."""
    evaluated: set[tuple[int, str]] = field(default_factory=set)
    """(version, task)"""
    owed: set[int] = field(default_factory=set)
    """Versions whose evaluation fell due."""
    evaluating: int | None = None
    """The version whose evaluation has begun and was not told."""

    def at_this_moment(self) -> Lineage:
        """A copy that later events do not change."""
        taken = copy(self)
        for name in ("finished", "settled", "visits", "evaluated", "owed"):
            setattr(taken, name, copy(getattr(self, name)))
        taken.counts = {prompt: list(counts) for prompt, counts in self.counts.items()}
        return taken

    def settle(self, number: int) -> None:
        """A group has come to its end."""
        assert number in self.finished, f"group {number} is settled and was never finished"
        finished = self.finished[number]
        assert number not in self.settled, f"group {number} is settled twice"
        visit = (finished.epoch, finished.prompt_id)
        assert visit not in self.visits, f"{visit} is settled twice"
        self.settled.add(number)
        self.visits.add(visit)

    def count(self, number: int) -> None:
        """The grades of a group are what its prompt is known by."""
        finished = self.finished[number]
        num_graded = len(finished.passed) - finished.passed.count(None)
        self.counts.setdefault(finished.prompt_id, []).append((self.step, finished.passed.count(True), num_graded, finished.epoch))

    def check_queue(self, queue: QueueState, scenario: Scenario) -> None:
        """Each prompt that was handed out is open or settled, once, but for those that the selector may leave out."""
        num_prompts = scenario.num_prompts
        turns = [(epoch, place) for epoch in range(queue.epoch) for place in range(num_prompts)]
        turns += [(queue.epoch, place) for place in range(queue.place)]
        handed_out = {(epoch, f"prompt-{_order(scenario.seed, epoch, num_prompts)[place]}") for epoch, place in turns}
        still_open = [(turn.epoch, f"prompt-{turn.index}") for turn in queue.open]
        assert len(set(still_open)) == len(still_open), "a prompt is open twice"
        assert not self.visits.intersection(still_open), "a prompt is open and settled"
        assert self.visits | set(still_open) <= handed_out, "a prompt is open or settled that was not handed out"
        for epoch, prompt in handed_out - self.visits - set(still_open):
            before = [counts for counts in self.counts.get(prompt, []) if counts[3] < epoch]
            left_out = any(scenario.selector.leaves_out(passed, graded, epochs_ago=epoch - at) for _, passed, graded, at in before)
            assert left_out, f"{prompt} of epoch {epoch} is lost"
        assert {f"prompt-{index}" for index in queue.counts} == set(self.counts), "the queue knows the counts of other prompts"
        for index, told in queue.counts.items():
            counts = self.counts[f"prompt-{index}"]
            last = {one[1:] for one in counts if one[0] == counts[-1][0]}
            assert told in last, f"the queue has {told} of prompt {index}, whose last groups have {last}"


@lru_cache(maxsize=4096)
def _order(seed: int, epoch: int, num_prompts: int) -> list[int]:
    """The training prompts in the order of an epoch."""
    return [int(index) for index in permutation(stream_key(seed, "order", epoch), num_prompts)]
