"""A model, batches and a task small enough to be checked by hand."""

import numpy as np

from scalerl.graders.exact import Exact
from scalerl.models.config import Config
from scalerl.records.rollout import Batch, Completion, Group, Outcome, Prompt, Score
from scalerl.tasks import Example, Task

MODEL = Config(hidden_size=16, num_layers=2, num_heads=2, num_kv_heads=1, intermediate_size=32, dtype="float32")
DIGITS = "0123456789:"
TOKENS = range(2, 2 + len(DIGITS))


def tiny_policy(*, dtype="float32", seed=0):
    return MODEL.model_copy(update={"dtype": dtype}).build(alphabet=DIGITS, seed=seed)


def completion(rng, index, num_tokens, *, value, inserted=()):
    """Random tokens whose behaviour lies near, but not at, what a fresh model says; NaN where tokens were inserted."""
    trainable = np.ones(num_tokens, np.bool_)
    trainable[list(inserted)] = False
    log_probs = np.where(trainable, rng.normal(-2.5, 0.5, num_tokens), np.nan).astype(np.float32)
    score = Score(None, None, Outcome.FAILED) if value is None else Score(value, value > 0)
    ids = rng.choice(TOKENS, num_tokens).astype(np.int32)
    return Completion(index, ids, log_probs, trainable, ((0, num_tokens),), True, score=score)


def group(rng, number, prompt_tokens, completions):
    return Group(number, Prompt(str(number), "tiny", "", tuple(rng.choice(TOKENS, prompt_tokens).tolist()), ""), 0, tuple(completions))


def ragged_batch(seed=0):
    """Two groups of unlike size, with a failed grading, inserted tokens and a completion that has nothing else."""
    rng = np.random.default_rng(seed)
    first = [
        completion(rng, 0, 5, value=1.0),
        completion(rng, 1, 9, value=0.0, inserted=(3, 4)),
        completion(rng, 2, 4, value=None),
        completion(rng, 3, 1, value=1.0),
    ]
    second = [completion(rng, 0, 3, value=0.0), completion(rng, 1, 2, value=1.0, inserted=(0, 1)), completion(rng, 2, 7, value=0.25)]
    return Batch(0, (group(rng, 0, 6, first), group(rng, 1, 2, second)))


def even_batch(seed=0, *, groups=3, size=4, prompt_tokens=4, num_tokens=5):
    """Groups whose completions alternate between right and wrong, all of one length."""
    rng = np.random.default_rng(seed)
    completions = [[completion(rng, i, num_tokens, value=float(i % 2)) for i in range(size)] for _ in range(groups)]
    return Batch(0, tuple(group(rng, number, prompt_tokens, members) for number, members in enumerate(completions)))


class Counting(Task):
    """Say the number that follows."""

    def examples(self, split):
        return [Example(f"{split}-{number}", f"{number}:", str(number + 1)) for number in range(10, 40)]

    def grader(self):
        return Exact()

    def alphabet(self):
        return DIGITS

    def demonstration(self, example, *, noise, draw):
        return "9" if draw() < noise.direct_share else example.answer


class Speechless(Counting):
    """A task without demonstrations."""

    def demonstration(self, example, *, noise, draw):
        return None
