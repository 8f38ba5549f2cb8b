"""Steps of RL per second and CPU-seconds per step, against TRL's GRPOTrainer.

    python benchmarks/vs_trl.py [REPETITIONS] [MODEL ...]

Two Qwen3 models with fresh weights (those of engine_speed.py), 32 prompts of 16 tokens x 8 completions. The one checkpoint of
both sides has no token that ends a completion, so that each has 64 tokens. All are trained on, with the same loss: CISPO that
caps at 5, advantages over the batch's std, a mean over tokens, logits in fp32, no KL term; one AdamW step for each batch; the
reward is the share of a letter. Nothing is logged, evaluated or saved by either side on the way.

Both sides have the machine's two cores to themselves, in turns. TRL has its defaults but bf16 (12 times slower on a CPU), 64
rows a pass (its 8 and all 256 are slower here) and one or two threads; the faster of the two counts. One of its defaults,
recomputing activations, saves memory that small models do not need: TRL without it is stated beside (`..._unchecked`).
scalerl runs the whole of `scalerl train`, one thread a process: at k = 8, where generation and training overlap, and at k = 0,
synchronous as TRL, inline and as processes, where they take turns.

A side's fastest turn counts, as other work on the machine only slows it down. CPU-seconds are those of all its processes. The
first steps are left out. The roofline is what one core needs for the useful FLOPs of generation and training
(accounting/flops.py), prompts once per group in either, at the rate of a matmul of these shapes; two cores need half of it.

Prints, as its last line, {ratio_steps, ratio_cpu, ...}: steps per second at k = 8 over TRL's, and CPU-seconds over TRL's;
`ratio_steps_k0` and `ratio_cpu_k0` are those of the faster run at k = 0. Of the models, the worse counts.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _report import Requirement, finish
from _rl_step import COMPLETION_TOKENS, GROUP, LETTER, NUM_PROMPTS, PROMPT_TOKENS, WARM_UP_STEPS
from engine_speed import ALPHABET, MODELS

from scalerl.accounting.flops import BACKWARD_PER_FORWARD, causal_pairs
from scalerl.models._policy import Policy

NUM_TRAIN_PROMPTS = 2000
STEPS = {"100k": 12, "1.5M": 5}
"""Measured steps."""
UNCHECKED = json.dumps({"gradient_checkpointing": False})
SIDES = {
    "trl_1_thread": ("trl", "1", "{}"),
    "trl_2_threads": ("trl", "2", "{}"),
    "trl_1_thread_unchecked": ("trl", "1", UNCHECKED),
    "trl_2_threads_unchecked": ("trl", "2", UNCHECKED),
    "scalerl_k0_inline": ("scalerl", "inline", "0"),
    "scalerl_k0_processes": ("scalerl", "processes", "0"),
    "scalerl_k8_processes": ("scalerl", "processes", "8"),
}


def main() -> int:
    """Measure every side for every model, compare, print."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    by_model = {name: compared(name, repetitions=repetitions) for name in sys.argv[2:] or STEPS}
    ratios = [name for name in next(iter(by_model.values())) if name.startswith("ratio_")]
    worst = {name: (min if "steps" in name else max)(figures[name] for figures in by_model.values()) for name in ratios}
    requirements = [
        Requirement("steps per second over TRL's", worst["ratio_steps"], least=1.7),
        Requirement("CPU-seconds per step over TRL's", worst["ratio_cpu"], most=0.8),
    ]
    return finish(requirements, worst | by_model)


def compared(name: str, *, repetitions: int) -> dict[str, Any]:
    """The figures of one model."""
    with tempfile.TemporaryDirectory() as folder:
        policy = prepared(name, Path(folder))
        turns: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
        for _ in range(repetitions):
            for side in SIDES:
                turns[side].append(in_process(side, folder=Path(folder), num_steps=WARM_UP_STEPS + STEPS[name]))
                print(f"{name}: {side:24} {turns[side][-1]['step_s']:7.3f} s a step, {turns[side][-1]['cpu_s']:7.3f} CPU-s", flush=True)
    best = {side: {of: min(turn[of] for turn in runs) for of in ("step_s", "cpu_s")} for side, runs in turns.items()}

    def faster(*sides: str) -> dict[str, float]:
        return min((best[side] for side in sides), key=lambda figures: figures["step_s"])

    trl = faster("trl_1_thread", "trl_2_threads")
    unchecked = faster("trl_1_thread_unchecked", "trl_2_threads_unchecked")
    k0, k8 = faster("scalerl_k0_inline", "scalerl_k0_processes"), best["scalerl_k8_processes"]
    least_s = roofline_s(policy)
    print(f"{name}: {'roofline of one core':24} {least_s:7.3f} s a step")
    ratios = {
        "ratio_steps": trl["step_s"] / k8["step_s"],
        "ratio_cpu": k8["cpu_s"] / trl["cpu_s"],
        "ratio_steps_k0": trl["step_s"] / k0["step_s"],
        "ratio_cpu_k0": k0["cpu_s"] / trl["cpu_s"],
        "ratio_steps_unchecked": unchecked["step_s"] / k8["step_s"],
        "ratio_cpu_unchecked": k8["cpu_s"] / unchecked["cpu_s"],
        "ratio_steps_k0_unchecked": unchecked["step_s"] / k0["step_s"],
        "ratio_cpu_k0_unchecked": k0["cpu_s"] / unchecked["cpu_s"],
    }
    seconds = {f"{side}_{of}": figure for side, figures in best.items() for of, figure in figures.items()}
    shares = {"roofline_s": least_s, "roofline_share": least_s / k8["cpu_s"]}
    return {figure: round(value, 3) for figure, value in (ratios | shares | seconds).items()}


def in_process(side: str, *, folder: Path, num_steps: int) -> dict[str, float]:
    """Wall and CPU seconds of a step of one side, in processes of its own."""
    library, *arguments = SIDES[side]
    threads = arguments[0] if library == "trl" else "1"
    script = Path(__file__).with_name(f"_rl_step_{library}.py")
    process = subprocess.run(
        [sys.executable, script, folder, str(num_steps), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
    )
    if process.returncode:
        raise SystemExit(f"{side} failed:\n{process.stderr[-3000:]}")
    figures: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    return figures


def prepared(name: str, folder: Path) -> Policy:
    """The model, written to `folder` with the prompts."""
    policy = MODELS[name].build(alphabet=ALPHABET, seed=0)
    # The first number that no token has: what ends completions can be named, as loaders ask, and is never sampled.
    policy.tokenizer.eos_token = None
    policy.config.eos_token_id = policy.module.generation_config.eos_token_id = policy.config.vocab_size
    policy.save(folder / "model")
    random = np.random.default_rng(0)
    prompts = ["".join(random.choice(list(ALPHABET), PROMPT_TOKENS)) for _ in range(NUM_TRAIN_PROMPTS)]
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": prompt, "answer": LETTER}) + "\n" for prompt in prompts))
    return policy


def roofline_s(policy: Policy) -> float:
    """Seconds of one core for the matmuls of a step: sampling, forward and backward, prompts once per group in either."""
    prompt, whole = np.array([PROMPT_TOKENS]), np.array([PROMPT_TOKENS + COMPLETION_TOKENS - 1])
    num_pairs = NUM_PROMPTS * int((causal_pairs(prompt) + GROUP * causal_pairs(whole, start=prompt)).sum())
    num_completions = NUM_PROMPTS * GROUP
    forward = policy.flops.forward(
        num_tokens=NUM_PROMPTS * PROMPT_TOKENS + num_completions * (COMPLETION_TOKENS - 1),
        num_pairs=num_pairs,
        num_logits=num_completions * COMPLETION_TOKENS,
    )
    torch.set_num_threads(1)
    config = policy.config
    left, right = torch.randn(4096, config.hidden_size), torch.randn(config.intermediate_size, config.hidden_size)
    times = []
    for _ in range(50):
        started_s = time.process_time()
        torch.nn.functional.linear(left, right)
        times.append(time.process_time() - started_s)
    rate = 2.0 * left.shape[0] * right.numel() / min(times)
    return (2 + BACKWARD_PER_FORWARD) * forward / rate


if __name__ == "__main__":
    raise SystemExit(main())
