"""Two processes that live, fail, are killed and always gone in the end; their roles are stand-ins (see fakes.py)."""

from __future__ import annotations

import asyncio
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from multiprocessing import active_children, resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from scalerl.core.clock import SystemClock
from scalerl.core.errors import DataError, LostRoleError, ScalerlError
from scalerl.records.cost import Activity
from scalerl.records.rollout import Group
from scalerl.runtimes import Roles, _processes
from scalerl.runtimes._processes import launched
from scalerl.runtimes._serve import Birth
from scalerl.runtimes.processes import Processes
from tests.runtimes.fakes import batch, request, setup

Story = Callable[[Roles], Awaitable[None]]


def play(story: Story, folder: Path, **settings: float) -> None:
    """Launch both processes, tell the story, and check that nothing of them is left, however it ended."""
    files_before, memory_before = open_files(), mapped_weights()

    async def whole() -> None:
        # While the processes start, and before they have run a line of ours.
        asyncio.get_running_loop().call_soon(interrupt)
        async with launched(Processes(**settings), setup(folder), clock=SystemClock(), builder="tests.runtimes.fakes") as roles:
            await story(roles)

    try:
        asyncio.run(whole())
    finally:
        assert active_children() == []
        assert mapped_weights() <= memory_before
        assert open_files() == files_before


def mapped_weights() -> set[str]:
    """Weights in memory files that this process looks at; those of an earlier inline run stay until it is collected."""
    return {line for line in Path("/proc/self/maps").read_text().splitlines() if "scalerl-weights" in line}


def open_files() -> set[str]:
    """What this process holds open, but for the pipe of multiprocessing's tracker, which stays from its first use on."""
    resource_tracker.ensure_running()
    return {file.name for file in Path("/proc/self/fd").iterdir()}


def interrupt() -> None:
    """Ctrl-C, as both roles get it."""
    for child in active_children():
        assert child.pid is not None
        os.kill(child.pid, signal.SIGINT)


def pid(role: str) -> int:
    (found,) = (child.pid for child in active_children() if child.name == role)
    assert found is not None
    return found


async def everything(roles: Roles) -> None:
    """Each call of each role, with Ctrl-C to both processes in the middle."""
    generator, trainer = roles.generator, roles.trainer
    generator.submit([request(0), request(1), request(2, "endless")])
    generator.allow(2)
    groups: list[Group] = []
    while len(groups) < 2:
        groups += (await generator.finished()).groups
    assert [group.id for group in groups] == [0, 1]
    interrupt()
    update = await trainer.train(batch(0, 1))
    assert (update.version, update.metrics["groups"]) == (1, 2.0)
    published = await trainer.publish_weights()
    taken = await generator.take_weights(1)
    assert published.probe_log_probs.tolist() == taken.probe_log_probs.tolist() == [1.0] * 8
    generator.begin_evaluation([request(7, num_tokens=4), request(8)])
    evaluated = await generator.finished()
    assert [(group.id, group.first_version) for group in evaluated.evaluated] == [(7, 1), (8, 1)]
    assert evaluated.groups == ()
    generator.cancel([2])
    generator.submit([request(3)])
    generator.allow(1)
    (last,) = (await generator.finished()).groups
    assert (last.id, last.first_version) == (3, 1)
    await trainer.save(roles.base)
    assert (roles.base / "version").read_text() == "1"
    idle = {(cost.activity, cost.detail) for cost in (*await generator.spent(), *await trainer.spent(), *update.costs)}
    assert {(Activity.IDLE, "no batch"), (Activity.IDLE, "buffer full")} <= idle
    assert {cost.detail for cost in roles.costs if cost.activity is Activity.LOAD} == {"process", ""}


@pytest.mark.parametrize("has_file", [True, False], ids=["weights through memory", "weights as messages"])
def test_every_call_reaches_its_role_and_ctrl_c_none(has_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_file:
        monkeypatch.delattr(os, "memfd_create")
    used_before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    play(everything, tmp_path)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime > used_before, "their CPU seconds are accounted for"


def test_a_killed_trainer_ends_the_run_with_a_sentence_wherever_it_waits(tmp_path: Path) -> None:
    async def story(roles: Roles) -> None:
        waiting = asyncio.gather(roles.generator.finished(), roles.trainer.train(batch(0)), return_exceptions=True)
        os.kill(pid("trainer"), signal.SIGSTOP)
        os.kill(pid("trainer"), signal.SIGKILL)
        errors = await waiting
        assert {str(error) for error in errors} == {"the trainer died (killed by SIGKILL); go on from the last checkpoint with --resume"}
        assert not any(isinstance(error, LostRoleError) for error in errors), "nobody can take its place"
        await roles.generator.spent()

    with pytest.raises(ScalerlError, match="the trainer died"):
        play(story, tmp_path)


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "stands still"])
def test_a_generator_that_is_lost_is_replaced_while_the_trainer_goes_on(blow: signal.Signals, tmp_path: Path) -> None:
    async def story(roles: Roles) -> None:
        generator, trainer = roles.generator, roles.trainer
        generator.submit([request(0, "endless")])
        generator.allow(1)
        first = pid("generator")
        os.kill(first, blow)
        with pytest.raises(LostRoleError) as loss:
            await generator.finished()
        assert loss.value.what in ("the generator died (killed by SIGKILL)", "nothing was heard from the generator for 6 s")
        with pytest.raises(LostRoleError):
            await generator.take_weights(0)
        await trainer.train(batch(0))
        published = await trainer.publish_weights()
        assert roles.restart is not None
        costs = await roles.restart(loss.value, folder=roles.base)
        assert pid("generator") != first
        assert {Activity.LOST, Activity.LOAD} <= {cost.activity for cost in costs}
        # The new one knows nothing of the groups before, and takes what was published before it was born.
        taken = await generator.take_weights(1)
        assert taken.probe_log_probs.tolist() == published.probe_log_probs.tolist()
        generator.submit([request(1)])
        generator.allow(1)
        (group,) = (await generator.finished()).groups
        assert (group.id, group.first_version) == (1, 1)

    # Long enough for a busy machine to start processes, which takes 1.5 s without torch.
    play(story, tmp_path, heartbeat_timeout_s=6.0)


def test_generators_are_replaced_as_often_as_is_said(tmp_path: Path) -> None:
    async def story(roles: Roles) -> None:
        assert roles.restart is not None
        for _ in range(2):
            os.kill(pid("generator"), signal.SIGKILL)
            with pytest.raises(LostRoleError) as loss:
                await roles.generator.finished()
            await roles.restart(loss.value, folder=roles.base)

    with pytest.raises(ScalerlError, match=r"runtime\.restarts: the generator died \(killed by SIGKILL\), after 1 restarts; go on"):
        play(story, tmp_path, restarts=1)


def test_a_generator_that_dies_while_the_base_is_made_ends_the_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spawn = _processes.spawned

    def killing(birth: Birth) -> tuple[BaseProcess, socket.socket]:
        process, pipe = spawn(birth)
        os.kill(process.pid or 0, signal.SIGKILL if birth.name == "generator" else signal.SIGSTOP)
        return process, pipe

    async def nothing(roles: Roles) -> None:
        raise AssertionError("no run begins without a generator")

    monkeypatch.setattr(_processes, "spawned", killing)
    with pytest.raises(ScalerlError, match="the generator died"):
        play(nothing, tmp_path)


def test_a_trainer_that_stands_still_ends_the_run(tmp_path: Path) -> None:
    async def story(roles: Roles) -> None:
        os.kill(pid("trainer"), signal.SIGSTOP)
        await roles.generator.finished()

    with pytest.raises(ScalerlError, match="nothing was heard from the trainer for 6 s"):
        play(story, tmp_path, heartbeat_timeout_s=6.0)


def test_errors_of_a_role_are_told_as_they_are_or_as_one_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def refused(roles: Roles) -> None:
        roles.generator.submit([request(0, "refuse")])
        roles.generator.allow(1)
        await roles.trainer.spent()
        await roles.generator.finished()

    async def nothing(roles: Roles) -> None:
        raise AssertionError("no run begins without a base")

    async def broken(roles: Roles) -> None:
        roles.generator.submit([request(0, "break")])
        await roles.generator.finished()

    with pytest.raises(DataError, match="nowhere: there is no base"):
        play(nothing, tmp_path / "nowhere")
    with pytest.raises(DataError, match="prompt: the prompt is refused; ask nicely"):
        play(refused, tmp_path)
    assert capfd.readouterr().err == ""
    with pytest.raises(ScalerlError, match=r"^the generator failed \(ZeroDivisionError: the engine broke\); go on from the last"):
        play(broken, tmp_path)
    assert "in submit" in capfd.readouterr().err


PARENT = """
import asyncio, multiprocessing, pathlib, sys
from scalerl.core.clock import SystemClock
from scalerl.runtimes._processes import launched
from scalerl.runtimes.processes import Processes
from tests.runtimes.fakes import request, setup

async def live():
    async with launched(Processes(), setup(pathlib.Path(".")), clock=SystemClock(), builder="tests.runtimes.fakes") as roles:
        roles.generator.submit([request(0, "endless")])
        roles.generator.allow(1)
        assert "torch" not in sys.modules, "the orchestrator is light"
        print(*[child.pid for child in multiprocessing.active_children()], flush=True)
        await roles.generator.finished()

if __name__ == "__main__":
    asyncio.run(live())
"""


def test_both_roles_end_when_the_orchestrator_is_killed(tmp_path: Path) -> None:
    """One of them decodes without end, the other waits: both see the pipe close."""
    (tmp_path / "parent.py").write_text(PARENT)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "parent.py"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        children = [int(word) for word in parent.stdout.readline().split()]
        watched = [os.pidfd_open(child) for child in children]
        parent.kill()
    assert len(children) == 2
    for descriptor in watched:
        gone, _, _ = select.select([descriptor], [], [], 60.0)
        os.close(descriptor)
        assert gone, "a role lives on without its orchestrator"


def test_a_process_that_cannot_be_started_is_told_in_a_sentence(tmp_path, monkeypatch):
    def refused(process: BaseProcess) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("multiprocessing.context.SpawnProcess.start", refused)
    with pytest.raises(ScalerlError, match=r"no process for the trainer could be started .*unavailable"):
        play(lambda roles: asyncio.sleep(0), tmp_path)
