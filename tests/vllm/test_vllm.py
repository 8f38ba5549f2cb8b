"""vLLM itself, beyond the contract of all engines: precision of the head, death of its process, and a whole run.

make test-vllm
"""

import copy
import os
import select
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from scalerl.accounting.meter import Meter
from scalerl.core.clock import SystemClock
from scalerl.core.errors import LostRoleError, ScalerlError
from scalerl.core.events import LogReader
from scalerl.engines.vllm import Vllm
from scalerl.models.config import Config
from scalerl.objective.length_controls.truncation import Truncation
from scalerl.records.cost import Activity
from scalerl.records.events import EVENTS_FILE, Evaluated, Event, StepFinished
from scalerl.testing.engines import ALPHABET, Served, tiny_policy
from tests.engines.tiny import ragged_requests
from tests.runs.small import SCALE, SETTINGS

pytestmark = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed here: make test-vllm")
ROOT = Path(__file__).parents[2]
GONE_MS = 20_000


def is_gone(pid):
    """Whether a process ends soon."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    ended = bool(poll.poll(GONE_MS))
    os.close(descriptor)
    return ended


def built(policy, **settings):
    return Vllm(**{"slots": 64} | settings).build(
        policy, control=Truncation(), prompt_tokens=16, completion_tokens=8, seed=0, meter=Meter("generator:0", clock=SystemClock())
    )


@pytest.mark.parametrize("head", ["fp32", "body"])
def test_the_head_of_a_bf16_body_is_fp32_where_it_is_to_be(head):
    """A bf16 matmul leaves logits of eight binary digits: their differences are multiples of 2^-9 where none is less than 2^-2."""
    policy = Config(hidden_size=64, num_heads=2, num_kv_heads=1, dtype="bfloat16", head=head).build(alphabet=ALPHABET, seed=3)
    with torch.no_grad():
        policy.module.lm_head.weight.mul_(40.0)
    oracle = copy.deepcopy(policy)
    context = policy.encode("12+34*5:", where="test")
    everything = range(policy.config.vocab_size)
    log_probs = built(policy).score([(context, (token,)) for token in everything])
    with torch.no_grad():
        logits = oracle.logits(oracle.hidden(torch.tensor([context]))[0, -1])
    np.testing.assert_allclose(log_probs, logits.log_softmax(-1).numpy(), atol=0.15)  # body: logits up to 16 of eight digits
    multiples = np.diff(np.sort(log_probs)) * 2**9
    from_a_multiple = np.abs(multiples - multiples.round()).max()
    assert from_a_multiple > 0.2 if head == "fp32" else from_a_multiple < 0.01


def test_after_kill_9_completions_go_on_from_their_tokens_under_their_ids():
    served = Served(Vllm(slots=16, restarts=1), control=Truncation())
    undisturbed = {group.id: group for group in served.finish(ragged_requests(served.policy))}
    served.loop.submit(ragged_requests(served.policy))
    finished = served.steps(4)
    first = served.loop.pid
    os.kill(first, signal.SIGKILL)
    finished += served.finish()
    assert is_gone(first)
    assert served.loop.pid != first
    assert sorted(group.id for group in finished) == list(range(6))
    for group in finished:
        for completion, before in zip(group.completions, undisturbed[group.id].completions, strict=True):
            # Four groups were in flight and keep four tokens; the draws of what follows are others.
            kept = 4 if group.id < 4 else 0
            assert completion.token_ids[:kept].tolist() == before.token_ids[:kept].tolist()
            np.testing.assert_allclose(completion.log_probs, served.exact_log_probs(group, completion), atol=1e-4)
    assert {cost.detail for cost in served.meter.collect() if cost.activity is Activity.LOAD} == {"vLLM"}
    # Its weights are those of the latest push, not those it was first started with.
    served.push(seed=1)
    os.kill(served.loop.pid, signal.SIGKILL)
    with pytest.raises(LostRoleError, match=r"engine: vLLM died \(killed by SIGKILL\); go on"):
        served.finish(ragged_requests(served.policy))


def test_a_process_started_again_has_the_weights_of_the_latest_push():
    served = Served(Vllm(slots=16, kv="reprefill"), control=Truncation())
    served.push(seed=1)
    served.loop.submit(ragged_requests(served.policy))
    finished = served.steps(2)
    os.kill(served.loop.pid, signal.SIGKILL)
    finished += served.push(seed=2) + served.finish()
    versions = {version for group in finished for completion in group.completions for version, _ in completion.version_runs}
    assert versions == {1, 2}
    for group in finished:
        for completion in group.completions:
            np.testing.assert_allclose(completion.log_probs, served.exact_log_probs(group, completion), atol=1e-4)


def test_its_process_ends_with_the_loop_and_with_whoever_started_it():
    loop = built(tiny_policy())
    pid = loop.pid
    del loop
    assert is_gone(pid)
    code = "from tests.vllm.test_vllm import *; loop = built(tiny_policy()); print(loop.pid, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
        assert is_gone(pid)


def test_a_model_that_vllm_cannot_run_is_told_in_one_sentence():
    policy = Config(hidden_size=32, num_heads=2, dtype="float32").build(alphabet=ALPHABET, seed=0)
    loop = built(policy)
    with pytest.raises(ScalerlError, match=r"^engine: vLLM does not start \(.*head_dim=16.*\); mend that, or choose 'embedded'$"):
        loop.score([((3, 4), (5,))])


@pytest.mark.parametrize("settings", [("runtime.type=processes", "pipeline.k=2", "engine.kv=reprefill"), ("runtime.type=inline",)])
def test_a_run_trains_with_it_and_both_sides_agree(tmp_path, settings):
    overrides = [*SETTINGS, "model.num_heads=1", "model.num_kv_heads=1", "engine.type=vllm", *settings]
    arguments = ["--scale", str(SCALE), *(part for setting in overrides for part in ("--set", setting)), "--out", str(tmp_path / "run")]
    command = [sys.executable, "-m", "scalerl.cli.main", "train", "scalerl", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "ended after step 6" in done.stderr
    events = [entry.event for entry in LogReader[Event](tmp_path / "run" / EVENTS_FILE, Event)]
    steps = [event for event in events if isinstance(event, StepFinished)]
    assert [event.step for event in steps] == list(range(1, 7))
    mismatch = [value for event in steps if (value := event.metrics.get("mismatch_max")) is not None]
    assert 0.0 < max(mismatch) < 1e-5
    assert {event.version for event in events if isinstance(event, Evaluated)} >= {0, steps[-1].version}
    costs = {(cost.activity, cost.detail) for event in events for cost in getattr(event, "costs", ())}
    assert {(Activity.LOAD, "vLLM"), (Activity.PUSH, "probe"), (Activity.GENERATE, "")} <= costs
