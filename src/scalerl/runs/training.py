"""Training: a recipe and a folder become a run; a folder alone goes on with one.

    outcome = train(resolve("scalerl"), Path("runs/mine"))
    outcome = resume(Path("runs/mine"))

Everything that matters is in the run directory, written as it happens: kill the process at any moment and resume.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scalerl.accounting.metrics_stream import MetricsStream
from scalerl.core.clock import Clock, SystemClock
from scalerl.core.errors import DataError, LostRoleError, ScalerlError, StoppedError, UsageError
from scalerl.pipeline.orchestrator import LoopSettings, LoopState, Orchestrator
from scalerl.pipeline.prompt_queue import PromptQueue
from scalerl.recipes import Recipe
from scalerl.records.cost import Cost
from scalerl.records.events import BaseReady, Resumed, RunStarted, Spent
from scalerl.records.rollout import Group, Prompt
from scalerl.runs.checkpoints import Checkpoint, CheckpointStore
from scalerl.runs.directory import RunDirectory
from scalerl.runs.journal import Observer, RunJournal
from scalerl.runs.rollouts import RolloutWriter
from scalerl.runtimes import Restart, Roles, Setup
from scalerl.tasks import Example, Split

STOPPED = "stopped by the user"

Say = Callable[[str], None]
"""Takes a sentence for the user."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    folder: Path
    reason: str
    step: int

    @property
    def is_complete(self) -> bool:
        """Whether it ended by itself: by its budget, an alarm or its curriculum."""
        return self.reason != STOPPED

    def raise_if_stopped(self) -> None:
        """Raise StoppedError where the user has stopped the run, which can be gone on with."""
        if not self.is_complete:
            raise StoppedError(f"stopped after step {self.step}", where=str(self.folder), remedy=_go_on(self.folder))


def train(
    recipe: Recipe, folder: Path, *, observers: Sequence[Observer] = (), say: Say = lambda _: None, clock: Clock | None = None
) -> Outcome:
    """Run `recipe` in a new run directory until its budget is spent.

    Raises:
        OccupiedError: something is in `folder` already.
        ScalerlError: a role or the disk failed; the run can be resumed.
    """
    clock = SystemClock() if clock is None else clock
    for component in (recipe.runtime, recipe.trainer, recipe.engine, recipe.task.grader()):
        component.check_usable()
    recipe.task.check_gold_answers()
    run = RunDirectory.create(folder, recipe, clock=clock)
    try:
        return _run(run, observers=observers, say=say, clock=clock)
    except (UsageError, DataError):
        # What cannot be used before there is a base leaves no folder in use.
        if not any(isinstance(entry.event, BaseReady) for entry in run.events()):
            shutil.rmtree(folder)
        raise


def resume(folder: Path, *, observers: Sequence[Observer] = (), say: Say = lambda _: None, clock: Clock | None = None) -> Outcome:
    """Go on with the run in `folder` from its latest checkpoint, or from its base if it has none.

    Raises:
        UsageError: there is no run, or it has ended.
        OccupiedError: another process is running it.
    """
    clock = SystemClock() if clock is None else clock
    return _run(RunDirectory.open(folder), observers=observers, say=say, clock=clock)


def _run(run: RunDirectory, *, observers: Sequence[Observer], say: Say, clock: Clock) -> Outcome:
    """The life of this process in a run."""
    try:
        return _lived(run, observers=observers, say=say, clock=clock)
    except KeyboardInterrupt:
        # Before the loop runs and takes Ctrl-C as a wish to stop, it is Python's own.
        raise StoppedError("stopped before training began", where=str(run.path), remedy=_go_on(run.path)) from None


def _lived(run: RunDirectory, *, observers: Sequence[Observer], say: Say, clock: Clock) -> Outcome:
    """Open everything that the run writes to, put it to work, and close it."""
    recipe = run.recipe
    with ExitStack() as at_end:
        log = at_end.enter_context(run.writer(clock=clock))
        journal = RunJournal(log, budget=recipe.budget, alarms=recipe.alarms, observers=observers)
        for entry in run.events():
            journal.replay(entry)
        if journal.ended not in (None, STOPPED):
            raise UsageError(f"the run has ended: {journal.ended}", where=str(run.path), remedy="start another one with a larger budget")
        store = CheckpointStore(run.path, recipe.checkpoints)
        checkpoint = store.latest(next_seq=log.next_seq)
        state = LoopState() if checkpoint is None else checkpoint.state
        if log.cut_bytes:
            say(f"A torn last line of {log.cut_bytes} bytes was cut off the event log.")
        journal.stream = MetricsStream(
            run.path,
            recipe.trackers,
            config=recipe.tree(),
            warn=say,
            last_step=None if checkpoint is None else state.step,
            last_evaluated=state.evaluated,
        )
        at_end.callback(journal.stream.close)
        attempt = journal.num_resumes + (1 if log.next_seq else 0)
        rollouts = RolloutWriter(run.path, seed=recipe.seed, attempt=attempt, share=recipe.rollouts.share)
        at_end.callback(rollouts.close)
        store.before_commit = (rollouts.flush, log.sync)
        # From here on the run's devices are its own, and every second of them is booked.
        if log.next_seq:
            journal.append(Resumed(from_seq=state.seq))
            say(f"Going on from step {state.step}." if checkpoint else "There is no checkpoint yet: beginning again.")
        else:
            journal.append(_started(recipe))
        living = _Life(run, recipe, journal, store, rollouts, say=say, clock=clock)
        return asyncio.run(living.live(checkpoint))


def _started(recipe: Recipe) -> RunStarted:
    ceiling = recipe.task.ceiling()
    return RunStarted(
        recipe_hash=recipe.hash,
        num_devices=recipe.runtime.generator_devices + recipe.runtime.trainer_devices,
        usd_per_device_hour=recipe.runtime.usd_per_device_hour,
        ceilings={} if ceiling is None else {recipe.task.name(): ceiling},
    )


class _Life:
    """What `_run` has opened, put to work."""

    def __init__(
        self,
        run: RunDirectory,
        recipe: Recipe,
        journal: RunJournal,
        store: CheckpointStore,
        rollouts: RolloutWriter,
        *,
        say: Say,
        clock: Clock,
    ) -> None:
        self._run, self._recipe, self._journal, self._store, self._rollouts = run, recipe, journal, store, rollouts
        self._say = say
        self._clock = clock

    async def live(self, checkpoint: Checkpoint | None) -> Outcome:
        """Start the roles, run the loop, end the roles."""
        async with self._recipe.runtime.launch(self._setup(checkpoint), clock=self._clock) as roles:
            if checkpoint is None:
                self._journal.append(BaseReady(costs=roles.costs))
            else:
                self._journal.append(Spent(costs=roles.costs))
            orchestrator = self._orchestrator(roles, None if checkpoint is None else checkpoint.state)
            with _interrupts(partial(self._interrupted, orchestrator)) as stopped_now:
                try:
                    reason = await orchestrator.run()
                except asyncio.CancelledError:
                    if not stopped_now.is_set():
                        raise
                    raise StoppedError(
                        f"stopped in the middle of step {orchestrator.step + 1}", where=str(self._run.path), remedy=_go_on(self._run.path)
                    ) from None
        return Outcome(self._run.path, reason, orchestrator.step)

    def _interrupted(self, orchestrator: Orchestrator) -> None:
        orchestrator.stop(STOPPED)
        self._say("Stopping after this step; press Ctrl-C again to stop now.")

    def _setup(self, checkpoint: Checkpoint | None) -> Setup:
        recipe = self._recipe
        return Setup(
            seed=recipe.seed,
            model=recipe.model,
            task=recipe.task,
            warm_start=recipe.warm_start,
            control=recipe.length.control,
            prompt_tokens=recipe.length.prompt_tokens,
            completion_tokens=recipe.length.completion_tokens,
            objective=recipe.objective,
            engine=recipe.engine,
            trainer=recipe.trainer,
            bases=_bases_folder(),
            checkpoint=None if checkpoint is None else checkpoint.path,
        )

    def _orchestrator(self, roles: Roles, state: LoopState | None) -> Orchestrator:
        recipe = self._recipe
        prompts, held_out = (self._prompts(split, roles.base) for split in (Split.TRAIN, Split.HELD_OUT))
        return Orchestrator(
            _loop_settings(recipe),
            prompts=PromptQueue(prompts, recipe.curriculum.selector, seed=recipe.seed, state=None if state is None else state.queue),
            held_out=held_out,
            generator=roles.generator,
            grader=roles.grader,
            trainer=roles.trainer,
            store=self._store,
            journal=self._journal,
            clock=self._clock,
            ends=self._journal.ends,
            inspect_base=self._inspect_base,
            keep_rollout=self._rollouts.add,
            restart=None if roles.restart is None else partial(self._restarted, roles.restart, roles.base),
            state=state,
        )

    async def _restarted(self, restart: Restart, base: Path, loss: LostRoleError) -> tuple[Cost, ...]:
        """Have another generator started, which is handed the weights in use when it has loaded any."""
        # What a resumed run began from is removed in time.
        costs = await restart(loss, folder=self._store.newest() or base)
        self._say(f"{loss.what[0].upper()}{loss.what[1:]}: another one was started.")
        return costs

    def _prompts(self, split: Split, base: Path) -> list[Prompt]:
        """The prompts of a split as token ids; those over the limit are left out and counted."""
        task, limit = self._recipe.task, self._recipe.length.prompt_tokens
        examples = task.examples(split)
        prompts = tokenized(examples, task=task.name(), tokenizer=base / "tokenizer.json")
        short = [prompt for prompt in prompts if len(prompt.token_ids) <= limit]
        if not short:
            raise DataError(
                f"every prompt of '{task.name()}' is longer than {limit} tokens",
                where=f"split {split}",
                remedy="raise length.prompt_tokens",
            )
        if len(short) < len(prompts):
            self._say(f"{len(prompts) - len(short)} of {len(prompts)} prompts ({split}) are longer than {limit} tokens and left out.")
        return short

    def _inspect_base(self, groups: Sequence[Group]) -> None:
        """Refuse a base from which RL cannot be expected to get anywhere."""
        graded = [
            (Example(group.prompt.id, group.prompt.text, group.prompt.answer), completion)
            for group in groups
            for completion in group.completions
        ]
        doubt = self._recipe.task.doubts_about_base(graded)
        if doubt is None and not any(completion.score is not None and completion.score.passed for _, completion in graded):
            doubt = f"none of {len(graded)} held-out completions of the base passed, so there is nothing to reinforce"
        if doubt is not None:
            raise ScalerlError(doubt, where="base", remedy="change warm_start, model or task until the base scores sometimes")


def _go_on(folder: Path) -> str:
    return f"go on with: scalerl train --resume --out {folder}"


def tokenized(examples: Sequence[Example], *, task: str, tokenizer: Path) -> list[Prompt]:
    """Examples as prompts of `task`, by the fast tokenizer in a `tokenizer.json`.

    Raises:
        DataError: a text has characters that the tokenizer does not know.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415  (an extra)

    encoder = Tokenizer.from_file(str(tokenizer))
    encoder.no_padding()
    encoder.no_truncation()
    try:
        encodings = encoder.encode_batch([example.text for example in examples])
    except Exception as error:  # The tokenizer's own errors have no type.
        raise DataError(f"a prompt cannot be tokenised ({error})", where=f"task '{task}'", remedy="use a tokenizer of bytes") from error
    return [
        Prompt(example.id, task, example.text, tuple(encoding.ids), example.answer)
        for example, encoding in zip(examples, encodings, strict=True)
    ]


def _loop_settings(recipe: Recipe) -> LoopSettings:
    return LoopSettings(
        num_prompts=recipe.batch.num_prompts,
        group=recipe.batch.group,
        slots=recipe.engine.slots,
        k=recipe.pipeline.k,
        schedule=recipe.pipeline.schedule,
        on_stale=recipe.pipeline.on_stale,
        ready_batches=recipe.pipeline.ready_batches,
        patience=recipe.pipeline.patience,
        filters=recipe.curriculum.filters,
        control=recipe.length.control,
        evaluate_every=recipe.evaluation.every_steps,
        evaluation_growth=recipe.evaluation.early_growth,
        evaluation_samples=recipe.evaluation.samples,
        checkpoint_every=recipe.checkpoints.every_steps,
    )


def _bases_folder() -> Path:
    """Where bases are kept between runs: `$SCALERL_CACHE`, or `scalerl` in the user's cache folder."""
    given = os.environ.get("SCALERL_CACHE")
    cache = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scalerl"
    return cache / "bases"


@contextmanager
def _interrupts(first: Callable[[], None]) -> Iterator[asyncio.Event]:
    """Within the block one Ctrl-C calls `first`; the next cancels the running task and sets the event.

    The task is cancelled at that moment and not when the loop has its turn: an inline role that works looks whether it is.
    Signals reach the main thread only: a run in another one is left to whoever started that.
    """
    loop, task, stopped_now = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()
    assert task is not None

    def interrupted(*_: object) -> None:
        signal.signal(signal.SIGINT, stop_now)
        loop.call_soon_threadsafe(first)

    def stop_now(*_: object) -> None:
        stopped_now.set()
        task.cancel()
        loop.call_soon_threadsafe(lambda: None)  # It may be asleep.

    if threading.current_thread() is not threading.main_thread():
        yield stopped_now
        return
    handled_before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield stopped_now
    finally:
        signal.signal(signal.SIGINT, handled_before)
