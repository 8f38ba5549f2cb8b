"""How fast and at what memory long logs are read into curves.

    python benchmarks/import_speed.py [MEGABYTES] [ROWS]

Writes TensorBoard event files of 200 MB and of a tenth of that (20 scalars a step) and a JSONL log of a million rows, and
reads each in a process of its own; the shorter event file also with TensorBoard's own reader, told to keep every point. The
last line is {tfevents_mb, tfevents_s, tfevents_peak_mb, ratio_vs_tensorboard, tensorboard_s, jsonl_rows, jsonl_mb, jsonl_s,
jsonl_peak_mb}: seconds of CPU without imports, the peak memory of the whole process, and TensorBoard's time over ours on the
shorter file.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from scalerl.importers.framing.crc32c import masked_crc32c
from scalerl.importers.framing.protobuf import encoded
from scalerl.importers.framing.tfrecord import framed

TAGS = ("eval/accuracy", *(f"train/metric_{place:02d}" for place in range(19)))
FIRST_STEP = 2**14
"""From here to 2^21 a step takes three bytes."""
STEP_S = 30.0
SHORTER = 10

READ_WITH_SCALERL = """
import json, sys, time
from scalerl.importers import Choice, read_curves
started_s = time.process_time()
(curve,) = read_curves(sys.argv[1], choice=Choice(y="eval/accuracy"))
num_points = len(curve)
"""
READ_WITH_TENSORBOARD = """
import json, sys, time
from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator
started_s = time.process_time()
events = EventAccumulator(sys.argv[1], size_guidance={SCALARS: 0})
events.Reload()
num_points = len(events.Scalars("eval/accuracy"))
"""
PRINT = """
seconds = time.process_time() - started_s
with open("/proc/self/status") as status:
    peak_kib = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
print(json.dumps([num_points, seconds, peak_kib / 1024]))
"""


def write_events(path: Path, *, megabytes: float) -> int:
    """An event file of about that size; the number of its steps."""
    frames = [framed(encoded(1, 1.7e9) + encoded(2, FIRST_STEP) + encoded(5, encoded(1, scalar(tag)))) for tag in TAGS]
    num_steps = int(megabytes * 1e6 / sum(map(len, frames)))
    place = np.arange(num_steps)
    blocks = [alike(frame, step=FIRST_STEP + place, wall_time=1.7e9 + STEP_S * place, value=0.8 - 0.5 / (1 + place)) for frame in frames]
    with path.open("wb") as file:
        file.write(framed(encoded(1, 1.7e9 - STEP_S) + encoded(3, "brain.Event:2")))
        np.concatenate(blocks, axis=1).tofile(file)
    return num_steps


def scalar(tag: str) -> bytes:
    """A summary's value; field 2, simple_value, comes last."""
    return encoded(1, tag) + b"\x15\0\0\0\0"


def alike(frame: bytes, *, step: np.ndarray, wall_time: np.ndarray, value: np.ndarray) -> np.ndarray:
    """(n, length) records like `frame`, each with its own numbers and checksum."""
    records = np.tile(np.frombuffer(frame, np.uint8), (step.size, 1))
    records[:, 13:21] = wall_time.astype("<f8").view(np.uint8).reshape(-1, 8)
    for byte in range(3):
        records[:, 22 + byte] = (step >> 7 * byte & 127) | (128 if byte < 2 else 0)
    records[:, -8:-4] = value.astype("<f4").view(np.uint8).reshape(-1, 4)
    records[:, -4:] = masked_crc32c(records[:, 12:-4].T).astype("<u4").view(np.uint8).reshape(-1, 4)
    return records


def write_jsonl(path: Path, *, num_rows: int) -> None:
    """A log with an evaluation in every hundredth row."""
    with path.open("w") as file:
        for step in range(num_rows):
            evaluation = ',"eval/acc":0.5' if step % 100 == 0 else ""
            file.write(f'{{"step":{step},"reward":0.25,"step_time":3.5,"loss":0.01,"kl":0.002,"note":"abc"{evaluation}}}\n')


def measured(reader: str, path: Path) -> tuple[int, float, float]:
    """Points, CPU-seconds and peak MiB of a process that reads `path`."""
    program = [sys.executable, "-c", reader + PRINT, str(path)]
    output = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    num_points, seconds, peak_mb = json.loads(output.splitlines()[-1])
    return num_points, seconds, peak_mb


def main() -> None:
    """Write, read, print."""
    megabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 200.0
    num_rows = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        long, short, jsonl = Path(folder) / "tfevents.long", Path(folder) / "tfevents.short", Path(folder) / "log.jsonl"
        num_steps, num_short = write_events(long, megabytes=megabytes), write_events(short, megabytes=megabytes / SHORTER)
        write_jsonl(jsonl, num_rows=num_rows)
        points, long_s, long_peak_mb = measured(READ_WITH_SCALERL, long)
        short_points, short_s, _ = measured(READ_WITH_SCALERL, short)
        tensorboard_points, tensorboard_s, _ = measured(READ_WITH_TENSORBOARD, short)
        assert (points, short_points, tensorboard_points) == (num_steps, num_short, num_short)
        _, jsonl_s, jsonl_peak_mb = measured(READ_WITH_SCALERL.replace("eval/accuracy", "eval/acc"), jsonl)
        figures = {
            "tfevents_mb": round(long.stat().st_size / 1e6, 1),
            "tfevents_s": round(long_s, 2),
            "tfevents_peak_mb": round(long_peak_mb),
            "ratio_vs_tensorboard": round(tensorboard_s / short_s, 1),
            "tensorboard_s": round(tensorboard_s, 2),
            "jsonl_rows": num_rows,
            "jsonl_mb": round(jsonl.stat().st_size / 1e6, 1),
            "jsonl_s": round(jsonl_s, 2),
            "jsonl_peak_mb": round(jsonl_peak_mb),
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
