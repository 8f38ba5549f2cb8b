"""Bases: what RL starts from, made once and kept under the hash of everything that decides it.

    bases/HASH/    model and tokenizer as transformers load them, and base.json: what made it and what that cost

A base is made in a folder of its own and renamed when it is whole, so two runs at once or a crash never leave half of one.
Taken from the cache it costs no seconds, but its FLOPs and tokens are booked as if made: absence is not zero.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scalerl.accounting.meter import Meter
from scalerl.core.errors import DataError, ScalerlError
from scalerl.core.files import sync
from scalerl.models import Model
from scalerl.models.checkpoint import Checkpoint
from scalerl.records.cost import Activity
from scalerl.tasks import Split, Task
from scalerl.trainers._folders import written
from scalerl.trainers.warm_starts import WarmStart

BASE_FILE = "base.json"
_FROM_CACHE = "base from the cache"
_LIBRARIES = ("scalerl", "torch", "transformers")
"""Whose versions decide the weights of a base."""


def base(
    model: Model, task: Task, warm_start: WarmStart | None, *, seed: int, bases: Path, meter: Meter, between: Callable[[], None]
) -> Path:
    """The folder of the base that these settings make: from the cache, or made now (minutes) and kept.

    Without a warm start it is the model as it was built. `between` is called after each step.

    Raises:
        ScalerlError: the model cannot be built, the warm start cannot be run, or `bases` cannot be written to.
        DataError: the base in the cache is damaged.
    """
    made_by = {
        "model": model.selection() | _files_of(model),
        "task": task.selection() | {"alphabet": task.alphabet()},
        "warm_start": None if warm_start is None else warm_start.selection() | {"examples": _digest(task)},
        "seed": seed,
        **{library: version(library) for library in _LIBRARIES},
    }
    folder = bases / hashlib.blake2b(json.dumps(made_by, sort_keys=True).encode(), digest_size=8).hexdigest()
    if folder.is_dir():
        _book_again(folder, meter=meter)
        return folder
    with meter.doing(Activity.WARM_START), _published(folder) as unfinished:
        policy = model.build(alphabet=task.alphabet(), seed=seed)
        own_meter = Meter(meter.device, clock=meter.clock)
        if warm_start is not None:
            warm_start.train(policy, task, seed=seed, meter=own_meter, between=between)
        costs = own_meter.collect()
        for cost in costs:
            meter.count(cost.activity, flops=cost.flops, overhead_flops=cost.overhead_flops, tokens=cost.tokens, detail=cost.detail)
        total = {name: sum(getattr(cost, name) for cost in costs) for name in ("flops", "overhead_flops", "tokens", "seconds")}
        with written(unfinished):
            policy.save(unfinished)
            (unfinished / BASE_FILE).write_text(json.dumps({"made_by": made_by, "cost": total}, indent=2))
    return folder


def _digest(task: Task) -> str:
    """A hash of what is demonstrated: a file, or another version of the package that makes it, may change under one setting."""
    texts = [(example.text, example.answer) for example in task.examples(Split.TRAIN)]
    return hashlib.blake2b(json.dumps(texts).encode(), digest_size=8).hexdigest()


def _files_of(model: Model) -> dict[str, Any]:
    """The files of a local checkpoint with size and time of change, so that one written over makes another base."""
    if not isinstance(model, Checkpoint) or not Path(model.path).is_dir():
        return {}
    files = sorted(path for path in Path(model.path).iterdir() if path.is_file())
    return {"files": [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]}


def _book_again(folder: Path, *, meter: Meter) -> None:
    try:
        with meter.doing(Activity.WARM_START, _FROM_CACHE):
            cost = json.loads((folder / BASE_FILE).read_text())["cost"]
        amounts = {name: cost[name] for name in ("flops", "overhead_flops", "tokens")}
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(
            f"its {BASE_FILE} does not say what this base cost", where=str(folder), remedy="remove the folder, so that it is made again"
        ) from None
    meter.count(Activity.WARM_START, **amounts, detail=_FROM_CACHE)


@contextmanager
def _published(folder: Path) -> Iterator[Path]:
    """A folder to write into that becomes `folder` as a whole when the block ends, unless another run was faster."""
    with ExitStack() as at_end:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            # One run at a time, so that a folder which is not locked yet does not pass for that of a dead run.
            with _locked(folder.parent, fcntl.LOCK_EX):
                _sweep(folder.parent)
                unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
                at_end.enter_context(_locked(unfinished, fcntl.LOCK_EX))
        except OSError as error:
            raise ScalerlError(
                f"no base can be kept here ({error.strerror or error})", where=str(folder.parent), remedy="choose another folder for bases"
            ) from None
        at_end.callback(shutil.rmtree, unfinished, ignore_errors=True)
        yield unfinished
        unfinished.chmod(0o755)
        _rename(unfinished, folder)
        sync(folder.parent)


def _rename(unfinished: Path, folder: Path) -> None:
    try:
        unfinished.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    """Hold a lock on `folder` that ends with this process, however it ends; `how` says whether to wait for it (see flock)."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def _sweep(bases: Path) -> None:
    """Remove what processes that died while they made a base have left: unfinished folders that nobody locks."""
    for left in bases.glob(".*.*"):
        try:
            with _locked(left, fcntl.LOCK_EX | fcntl.LOCK_NB):
                shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue
