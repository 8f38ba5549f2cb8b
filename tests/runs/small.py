"""A run of seconds: one layer, one operation, four prompts a step. Its base is made once and cached.

python tests/runs/small.py FOLDER MOMENT ROLE [path=value ...]     start or resume it, and kill ROLE with -9 at MOMENT
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from pathlib import Path

from scalerl.pipeline.orchestrator import Orchestrator
from scalerl.recipes import Recipe, resolve
from scalerl.records.events import CheckpointStarted, RunEntry, StepFinished
from scalerl.runs import checkpoints
from scalerl.runs.training import Outcome, resume, train

SCALE = Path(__file__).parents[2] / "examples" / "tiny.toml"
SETTINGS = ("budget.steps=6", "evaluation.every_steps=3", "checkpoints.every_steps=2", "pipeline.k=0")


def small_recipe(*overrides: str) -> Recipe:
    return resolve("scalerl", scale=SCALE, overrides=[*SETTINGS, *overrides])


class Killer:
    """Kills a role of the run that lives in this process, once, at a moment."""

    def __init__(self, moment: str, role: str) -> None:
        self.moment = moment
        self.role = role

    def __call__(self, entry: RunEntry) -> None:
        event = entry.event
        if self.moment == "step" and isinstance(event, StepFinished) and multiprocessing.active_children():
            self.kill()
        if self.moment == "checkpoint" and isinstance(event, CheckpointStarted) and multiprocessing.active_children():
            self.kill()

    def kill(self) -> None:
        for child in multiprocessing.active_children():
            if self.role in (child.name, "all"):
                os.kill(child.pid or 0, signal.SIGKILL)
        if self.role in ("orchestrator", "all"):
            os.kill(os.getpid(), signal.SIGKILL)

    def arm(self) -> None:
        """Have it called at the moments that are no events."""
        if self.moment == "push":
            push = Orchestrator._push

            async def killed_while_pushing(loop: Orchestrator):  # type: ignore[no-untyped-def]
                await loop._trainer.publish_weights()
                self.kill()
                return await push(loop)

            Orchestrator._push = killed_while_pushing  # type: ignore[method-assign]
        if self.moment == "commit":
            sync = checkpoints.sync

            def killed_before_renaming(folder: Path) -> None:
                sync(folder)
                self.kill()

            checkpoints.sync = killed_before_renaming
        if self.moment == "append":
            write = os.write

            def torn(descriptor: int, line: bytes) -> int:
                if b'"step_finished"' in line:
                    write(descriptor, line[: len(line) // 2])
                    self.kill()
                return write(descriptor, line)

            os.write = torn  # type: ignore[assignment]


def main(folder: Path, moment: str, role: str, *overrides: str) -> Outcome:
    killer = Killer(moment, role)
    killer.arm()
    if folder.exists():
        return resume(folder, observers=(killer,))
    return train(small_recipe(*overrides), folder, observers=(killer,))


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), *sys.argv[2:]))
