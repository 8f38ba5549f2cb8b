"""Left-to-right arithmetic modulo 10 with + - *, with a ceiling that can be proved.

    prompt 7+8*3-4:::   completion +5*5-1=1   (each operator again with the value that it leads to, then the answer)

Prompts are filled up to one width, and a step of thinking is as long as a step of the question: what a step reads then
stands at one distance from it, which a decoder with relative positions learns in a minute; without, it took more than ten.

A share of all prompts, marked by a keyed hash that the prompt does not show, has a gold answer outside the
vocabulary, as wrong labels have in real data: no policy can score there, so the ceiling is one minus that share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import count
from math import sqrt
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from scalerl.core.random import stream_key, uniform
from scalerl.graders import Grader
from scalerl.graders.exact import Exact
from scalerl.records.rollout import Completion
from scalerl.tasks import Example, Noise, Split, Task

_DIGITS, _OPERATORS = "0123456789", "+-*"
_PROMPT_END, _ANSWER = ":", "="
_UNSOLVABLE = "x"
"""A gold answer that the alphabet cannot spell."""
_GUESS_RATE = 0.1
"""What a uniform guess passes."""
_DRAWN_AT_ONCE = 4096
_LEAST_SAMPLE = 30
"""Completions below which a rate of passes tells nothing about a base."""


class Chain(Task):
    """The embedded task of the laptop scale."""

    operations: tuple[int, int] = (2, 7)
    """Least and largest number of operations in a prompt, both included."""
    num_prompts: int = Field(default=4096, gt=0)
    """Training prompts: a finite set, seen again every epoch."""
    unsolvable_share: float = Field(default=0.15, ge=0.0, lt=1.0)
    """Share of the prompts, training and held-out alike, that nothing can score on."""

    def examples(self, split: Split) -> Sequence[Example]:
        """The held-out prompts, or the training prompts; the former do not depend on how many there are of the latter."""
        return self._examples()[split]

    def grader(self) -> Grader:
        """The last `=` and what follows it, so that an interruption may ask for the answer once more."""
        return Exact(after=_ANSWER)

    def alphabet(self) -> str:
        """Digits, operators, and the ends of prompt and scratchpad."""
        return _DIGITS + _OPERATORS + _PROMPT_END + _ANSWER

    def demonstration(self, example: Example, *, noise: Noise, draw: Callable[[], float]) -> str:
        """A scratchpad that goes on from its own wrong values, or an answer without one; arithmetic also where marked."""
        digits, operators = _symbols(example.text)
        direct = draw() < noise.direct_share
        value, written = int(digits[0]), ""
        for operator, digit in zip(operators, digits[1:], strict=True):
            value = _applied(operator, value, int(digit))
            if not direct and draw() < noise.error_rate:
                value = _another(value, draw())
            written += f"{operator}{value}"
        if not direct:
            return f"{written}{_ANSWER}{value}"
        return f"{_ANSWER}{_another(value, draw()) if draw() < noise.error_rate else value}"

    def ceiling(self) -> float:
        """One minus the share of marked prompts, counted on the held-out set."""
        answers = [example.answer for example in self.examples(Split.HELD_OUT)]
        return 1.0 - answers.count(_UNSOLVABLE) / len(answers)

    def gold_completion(self, example: Example) -> str | None:
        """The answer after its `=`; None for a marked prompt, which has none."""
        return None if example.answer == _UNSOLVABLE else _ANSWER + example.answer

    def doubts_about_base(self, graded: Sequence[tuple[Example, Completion]]) -> str | None:
        """The two ways in which a base was seen to fail: thinking that does not pay, and lengths that never pass.

        Rates count solvable prompts only. A rate fails a bound when even two standard errors more would not reach it.
        """
        solvable = [
            (example.text, completion.text, bool(completion.score.passed))
            for example, completion in graded
            if completion.score is not None and completion.score.value is not None and example.answer != _UNSOLVABLE
        ]
        return _doubt_about_thinking(solvable) or _doubt_about_support(solvable)

    def _examples(self) -> dict[Split, list[Example]]:
        texts = _texts(self.operations, self.num_held_out + self.num_prompts, self.data_seed)
        parts = {Split.HELD_OUT: texts[: self.num_held_out], Split.TRAIN: texts[self.num_held_out :]}
        return {
            split: [Example(f"{split}-{index}", text, self._answer(text)) for index, text in enumerate(part)]
            for split, part in parts.items()
        }

    def _answer(self, text: str) -> str:
        word, _ = stream_key(self.data_seed, "chain.unsolvable", text)
        return _UNSOLVABLE if word < self.unsolvable_share * 2**32 else str(_result(text))

    @model_validator(mode="after")
    def _possible(self) -> Self:
        low, high = self.operations
        if not 0 < low <= high:
            raise ValueError(f"operations must hold 0 < least <= largest, not {low} and {high}")
        needed, existing = self.num_held_out + self.num_prompts, sum(10 * 30**length for length in range(low, high + 1))
        # Drawn at random until all differ: beyond half of what exists that takes long.
        if needed > existing // 2:
            raise ValueError(f"{needed} different prompts are more than half of the {existing} that exist: raise operations")
        return self


@lru_cache(maxsize=8)
def _texts(operations: tuple[int, int], number: int, data_seed: int) -> tuple[str, ...]:
    """`number` different prompts, the same on every machine; a larger number begins with the same ones."""
    low, high = operations
    key = stream_key(data_seed, "chain.prompts")
    found: dict[str, None] = {}
    for start in count(step=_DRAWN_AT_ONCE):
        columns = uniform(key, np.arange(start, start + _DRAWN_AT_ONCE)[:, None], np.arange(2 * high + 2)[None, :])
        found |= dict.fromkeys(_text(row, low, high) for row in columns.tolist())
        if len(found) >= number:
            break
    return tuple(found)[:number]


def _text(draws: Sequence[float], low: int, high: int) -> str:
    """One prompt from uniform draws: the number of operations, then digits and operators by turns."""
    num_operations = low + int(draws[0] * (high - low + 1))
    symbols = [
        _OPERATORS[int(draw * len(_OPERATORS))] if position % 2 else _DIGITS[int(draw * len(_DIGITS))]
        for position, draw in enumerate(draws[1 : 2 * num_operations + 2])
    ]
    return "".join(symbols).ljust(2 * high + 2, _PROMPT_END)


def _applied(operator: str, value: int, digit: int) -> int:
    if operator == "+":
        return (value + digit) % 10
    return (value - digit) % 10 if operator == "-" else value * digit % 10


def _result(text: str) -> int:
    digits, operators = _symbols(text)
    value = int(digits[0])
    for operator, digit in zip(operators, digits[1:], strict=True):
        value = _applied(operator, value, int(digit))
    return value


def _symbols(text: str) -> tuple[str, str]:
    """The digits and the operators of a prompt."""
    asked = text.rstrip(_PROMPT_END)
    return asked[::2], asked[1::2]


def _another(value: int, draw: float) -> int:
    """One of the nine other digits."""
    return (value + 1 + int(9 * draw)) % 10


_Graded = Sequence[tuple[str, str, bool]]
"""Prompt, completion, and whether it passed."""


def _doubt_about_thinking(graded: _Graded) -> str | None:
    """Below the pass rate of guesses RL takes scratchpads away, and collapses to one answer; twice that rate has never failed."""
    thought = [passed for prompt, answer, passed in graded if _operators_written(answer) == _symbols(prompt)[1]]
    guessed = [passed for _, answer, passed in graded if answer.startswith(_ANSWER)]
    guess_rate = max(_GUESS_RATE, sum(guessed) / len(guessed)) if len(guessed) >= _LEAST_SAMPLE else _GUESS_RATE
    if len(thought) < _LEAST_SAMPLE:
        if 2 * len(thought) >= len(graded):
            return None  # the base thinks, but too little was graded to say how well
        return f"only {len(thought)} of {len(graded)} completions of the base write a full scratchpad: train it longer"
    rate = sum(thought) / len(thought)
    if rate + 2.0 * sqrt(rate * (1.0 - rate) / len(thought)) >= 2.0 * guess_rate:
        return None
    return (
        f"with a full scratchpad the base passes {rate:.3f} of {len(thought)} solvable prompts, and guesses pass {guess_rate:.3f}:"
        " less than twice that, and RL unlearns to think; train the base longer or on fewer errors"
    )


def _doubt_about_support(graded: _Graded) -> str | None:
    """RL raises what a base can do sometimes; it does not invent what it never does."""
    tried = Counter(_num_operations(prompt) for prompt, _, _ in graded)
    passes = Counter(_num_operations(prompt) for prompt, _, passed in graded if passed)
    for num_operations, number in sorted(tried.items()):
        if number >= _LEAST_SAMPLE and not passes[num_operations]:
            return (
                f"the base passes none of {number} solvable prompts of {num_operations} operations, and RL cannot raise what never happens:"
                " train the base longer or ask for fewer operations"
            )
    return None


def _num_operations(prompt: str) -> int:
    return len(_symbols(prompt)[1])


def _operators_written(answer: str) -> str:
    return answer.partition(_ANSWER)[0][::2]
