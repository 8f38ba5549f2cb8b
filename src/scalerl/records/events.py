"""Events: what happened in a run, in order. Metrics, ledger and curve are folds over them and nothing else.

Per group and per step, never per token; what belongs to single completions is a column of G values. Token ids and
log-probs go to `rollouts/`. Every event can carry the costs that were measured since the one before.
"""

from __future__ import annotations

import msgspec

from scalerl.core.events import Entry
from scalerl.records.cost import Cost
from scalerl.records.push import Push
from scalerl.records.rollout import Outcome

EVENTS_FILE = "events.jsonl"
"""Name of the event log in a run directory."""


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    costs: tuple[Cost, ...] = ()
    """What was spent since the last event that told."""


class RunStarted(_Event, frozen=True, kw_only=True, tag="run_started"):
    """A run begins."""

    recipe_hash: str
    num_devices: int
    """Slots whose every second is booked."""
    usd_per_device_hour: float | None = None
    ceilings: dict[str, float] = {}
    """By task, the largest held-out pass rate that any policy can reach; only where it can be proved."""


class BaseReady(_Event, frozen=True, kw_only=True, tag="base_ready"):
    """The base model stands: what was spent so far (loading, the warm start) is booked, but not on the curve's axis."""


class CheckpointStarted(_Event, frozen=True, kw_only=True, tag="checkpoint_started"):
    """State is captured here: the checkpoint holds everything up to this event and nothing after."""

    step: int


class Resumed(_Event, frozen=True, kw_only=True, tag="resumed"):
    """The run goes on from the checkpoint captured at event `from_seq`, or from the beginning (-1); the rest is repeated."""

    from_seq: int


class Restarted(_Event, frozen=True, kw_only=True, tag="restarted"):
    """A role was lost, and another process took its place; the run itself went on."""

    role: str
    reason: str
    groups: tuple[int, ...] = ()
    """Groups in flight, which are generated from their beginning again."""


class GroupFinished(_Event, frozen=True, kw_only=True, tag="group_finished"):
    """All completions of a prompt are sampled and graded. Columns hold one value per completion."""

    group: int
    prompt_id: str
    epoch: int
    task: str
    num_tokens: tuple[int, ...]
    """(G,) sampled and inserted tokens."""
    values: tuple[float | None, ...]
    """(G,) None where the grader failed."""
    passed: tuple[bool | None, ...]
    finished: tuple[bool, ...]
    """(G,) whether it stopped by itself."""
    first_versions: tuple[int, ...]
    """(G,) the version that sampled the first token."""
    last_versions: tuple[int, ...]
    """(G,) the version that sampled the last token."""
    num_inserted: tuple[int, ...] = ()
    """(G,) tokens of an interruption; empty where there was none."""
    outcomes: tuple[Outcome, ...] = ()
    """(G,) how grading ended; empty where all were graded."""


class StepFinished(_Event, frozen=True, kw_only=True, tag="step_finished"):
    """The trainer has dealt with a batch. A batch filtered to nothing is a step without update: `version` stands."""

    step: int
    version: int
    """The version after this step."""
    trained: tuple[int, ...] = ()
    """Groups in the loss."""
    filtered: dict[str, tuple[int, ...]] = {}
    """Groups that filters took out, by filter."""
    dropped: tuple[int, ...] = ()
    """Groups too old to train on."""
    failed: tuple[int, ...] = ()
    cancelled: tuple[int, ...] = ()
    metrics: dict[str, float | None] = {}
    """What the trainer measured: loss, gradient norm, entropy ...; what is not finite is written as None."""
    push: Push | None = None
    """What the push of the new version met in the generator; None where there was none."""


class Evaluated(_Event, frozen=True, kw_only=True, tag="evaluated"):
    """Held-out completions of one frozen version were graded."""

    task: str
    version: int
    num_passed: int
    num_graded: int
    """Completions with a grade: those whose grading failed are not in it."""
    blocked_s: float = 0.0
    """Wall seconds for which training stood still; they leave the curve's axis. 0 where nothing waited for the evaluation."""


class Alarmed(_Event, frozen=True, kw_only=True, tag="alarmed"):
    """Something that a step measured is beyond its limit."""

    step: int
    alarm: str
    """Which alarm: truncation, ess, entropy, mismatch, grader_failures ..."""
    value: float
    limit: float
    stops: bool = False
    """Whether the run ends for it."""


class Spent(_Event, frozen=True, kw_only=True, tag="spent"):
    """Costs that belong to no other event."""


class RunEnded(_Event, frozen=True, kw_only=True, tag="run_ended"):
    """The run is over, and why."""

    reason: str


Event = (
    RunStarted | BaseReady | CheckpointStarted | Resumed | Restarted | GroupFinished | StepFinished | Evaluated | Alarmed | Spent | RunEnded
)
RunEntry = Entry[Event]
