"""The prompt queue: every training prompt once per epoch, in an order drawn from the seed and the epoch.

A prompt is *settled* when its group has been trained on, filtered, dropped or has failed. What was handed out and is not
settled is handed out again after a resume, first and in its old order, so that an epoch settles each prompt once,
whatever happened in between. A selector may leave prompts out, by the counts of their last settled group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from scalerl.core.random import permutation, stream_key
from scalerl.curriculum.selectors import Selector
from scalerl.records.rollout import Prompt


@dataclass(frozen=True, slots=True, order=True)
class Turn:
    """One visit to one prompt."""

    epoch: int
    place: int
    """Place in the order of the epoch."""
    index: int
    """Which of the training prompts it is."""


class QueueState(msgspec.Struct):
    """What a checkpoint keeps: everything before (`epoch`, `place`) was handed out, and but for `open` is settled."""

    epoch: int = 0
    place: int = 0
    open: list[Turn] = []
    """Handed out and not settled, in order."""
    counts: dict[int, tuple[int, int, int]] = {}
    """(passed, graded, epoch) of the last settled group of a prompt, by the prompt's index."""


class PromptQueue:
    """Hands out prompts and remembers which are settled."""

    def __init__(self, prompts: Sequence[Prompt], selector: Selector, *, seed: int, state: QueueState | None = None) -> None:
        state = QueueState() if state is None else state
        self.prompts = prompts
        self._selector = selector
        self._seed = seed
        self._epoch, self._place = state.epoch, state.place
        self._order = self._order_of(state.epoch)
        self._again = list(state.open)
        self._open: set[Turn] = set()
        self._counts = dict(state.counts)

    def take(self) -> Turn | None:
        """The next prompt; None if every prompt is left out for good."""
        turn = self._again.pop(0) if self._again else self._next()
        if turn is not None:
            self._open.add(turn)
        return turn

    def settle(self, turn: Turn, *, counts: tuple[int, int] | None = None) -> None:
        """The group of `turn` is dealt with; `counts` are its completions (passed, graded), None if it failed or was dropped."""
        self._open.remove(turn)
        if counts is not None:
            self._counts[turn.index] = (*counts, turn.epoch)

    def give_back(self, turn: Turn) -> None:
        """The group of `turn` was given up: the prompt comes again."""
        self._open.remove(turn)
        self._again.append(turn)

    def num_left_out(self) -> int:
        """Prompts that the selector would leave out now."""
        return sum(self._leaves_out(index, epoch=self._epoch) for index in self._counts)

    def state(self) -> QueueState:
        """The state as of now, for a checkpoint."""
        return QueueState(self._epoch, self._place, sorted([*self._open, *self._again]), dict(self._counts))

    def _next(self) -> Turn | None:
        for _ in range((2 + self._selector.longest_rest_epochs) * len(self.prompts)):
            if self._place == len(self._order):
                self._epoch, self._place = self._epoch + 1, 0
                self._order = self._order_of(self._epoch)
            turn = Turn(self._epoch, self._place, self._order[self._place])
            self._place += 1
            if not self._leaves_out(turn.index, epoch=turn.epoch):
                return turn
        return None

    def _leaves_out(self, index: int, *, epoch: int) -> bool:
        num_passed, num_graded, last = self._counts.get(index, (0, 0, epoch))
        return self._selector.leaves_out(num_passed, num_graded, epochs_ago=epoch - last)

    def _order_of(self, epoch: int) -> list[int]:
        return [int(index) for index in permutation(stream_key(self._seed, "order", epoch), len(self.prompts))]
