"""Any data set of the package reasoning-gym by its name, made on the fly from a seed.

    [task]
    type = "reasoning_gym"
    dataset = "chain_sum"
    parameters = { min_terms = 2, max_terms = 2, max_digits = 1 }

The prompt is the entry's question, the gold answer its answer, and the grader its own scorer. A question that comes twice is
left out the second time; the first `num_held_out` different ones are held out, whatever number is trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import count
from typing import Literal

from pydantic import Field, JsonValue

from scalerl.core.errors import DataError
from scalerl.graders import Grader
from scalerl.graders._reasoning_gym import BLOCK, DataSet
from scalerl.graders.reasoning_gym import ReasoningGym as OwnScorer
from scalerl.tasks import Example, Noise, Split, Task

_LEAST_NEW = 0.01
"""Share of new questions in a block below which the set counts as exhausted."""


class ReasoningGym(Task):
    """Procedural puzzles with the grader that the data set brings."""

    dataset: str = Field(min_length=1, examples=["basic_arithmetic"])
    """Name of the data set, e.g. `basic_arithmetic`."""
    parameters: dict[str, JsonValue] = {}
    """The data set's own parameters, e.g. `min_terms`; what is not named has the package's default."""
    num_prompts: int = Field(default=4096, gt=0)
    """Training prompts to make."""
    shared_text: Literal["keep", "leave_out"] = "keep"
    """Whether prompts begin and end with what all of them share: an instruction that a model of this one set needs not read."""

    def examples(self, split: Split) -> Sequence[Example]:
        """The examples of a split.

        Raises:
            UsageError: there is no such data set or parameter, or the package is not installed.
            DataError: the set has too few different questions, or no gold answers.
        """
        return self._examples()[split]

    def grader(self) -> Grader:
        """The data set's own scorer."""
        return OwnScorer(dataset=self.dataset, parameters=self.parameters, data_seed=self.data_seed)

    def alphabet(self) -> str:
        """Every character of its questions and answers."""
        return "".join(
            sorted({character for split in Split for example in self.examples(split) for character in example.text + example.answer})
        )

    def demonstration(self, example: Example, *, noise: Noise, draw: Callable[[], float]) -> str:
        """The gold answer, or at the rate of errors that of another training example."""
        if draw() >= noise.error_rate:
            return example.answer
        others = self.examples(Split.TRAIN)
        return others[int(draw() * len(others))].answer

    def _examples(self) -> dict[Split, tuple[Example, ...]]:
        data_set = DataSet.of(self.dataset, self.parameters, seed=self.data_seed)
        examples = _different(data_set, self.num_held_out + self.num_prompts, self.shared_text)
        return {Split.HELD_OUT: examples[: self.num_held_out], Split.TRAIN: examples[self.num_held_out :]}


@lru_cache(8)
def _different(data_set: DataSet, number: int, shared_text: Literal["keep", "leave_out"]) -> tuple[Example, ...]:
    """`number` examples with different questions; the numbers of their entries, which their ids hold, lead a grader to them."""
    numbers = _numbers_of_different(data_set, number)
    questions = [data_set.entry(place)["question"] for place in numbers]
    texts = questions if shared_text == "keep" else _without_shared_text(questions)
    return tuple(
        Example(f"{data_set.name}-{place}", text, data_set.entry(place)["answer"]) for place, text in zip(numbers, texts, strict=True)
    )


def _numbers_of_different(data_set: DataSet, number: int) -> list[int]:
    found: dict[str, int] = {}
    for start in count(step=BLOCK):
        num_before = len(found)
        for place in range(start, start + BLOCK):
            found.setdefault(data_set.entry(place)["question"], place)
            if len(found) == number:
                return list(found.values())
        if len(found) - num_before < _LEAST_NEW * BLOCK:
            raise DataError(
                f"{start + BLOCK} draws gave {len(found)} different questions, and {number} are asked for",
                where=data_set.where,
                remedy="lower task.num_prompts or task.num_held_out, or widen task.parameters",
            )
    raise AssertionError("counting has no end")


def _without_shared_text(texts: Sequence[str]) -> list[str]:
    """The texts without their longest common beginning, and then without their longest common end; different ones stay so."""
    start = _num_shared(texts)
    shortened = [text[start:] for text in texts]
    end = _num_shared([text[::-1] for text in shortened])
    return [text[: len(text) - end] for text in shortened]


def _num_shared(texts: Sequence[str]) -> int:
    """Characters that all texts begin with: those that the first and the last in alphabetical order begin with."""
    first, last = min(texts), max(texts)
    return next((place for place, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
