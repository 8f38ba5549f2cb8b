"""What the two sides of vs_trl.py have in common: the work, and how it is timed."""

import json
import multiprocessing
import os
import time
from collections.abc import Sequence
from pathlib import Path

NUM_PROMPTS, GROUP, PROMPT_TOKENS, COMPLETION_TOKENS = 32, 8, 16, 64
LEARNING_RATE = 1e-4
WARM_UP_STEPS = 2
LETTER = "1"
"""A completion's reward is its share of the characters."""

Moment = tuple[float, float]
"""Wall seconds, and CPU-seconds of this process and of all its children."""


def now() -> Moment:
    """Taken at the end of each step."""
    ticks = 0
    for child in multiprocessing.active_children():
        # The name, in brackets, may hold blanks.
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.perf_counter(), time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def report(ends: Sequence[Moment]) -> None:
    """Print what a step took in the mean, the first ones left out."""
    (first_s, first_cpu_s), (last_s, last_cpu_s) = ends[WARM_UP_STEPS - 1], ends[-1]
    num_steps = len(ends) - WARM_UP_STEPS
    print(json.dumps({"step_s": (last_s - first_s) / num_steps, "cpu_s": (last_cpu_s - first_cpu_s) / num_steps}))
