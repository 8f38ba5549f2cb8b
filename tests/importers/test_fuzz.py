"""Every importer on damaged and absurd logs: curves with sound numbers, or one sentence with exit code 2 or 3."""

import json
import math
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scalerl.core.errors import DataError, UsageError
from scalerl.importers import Choice, Importer, list_columns, read_curves
from scalerl.importers.framing.protobuf import encoded
from scalerl.importers.framing.tfrecord import framed
from tests.importers import test_swanlab, test_wandb

EXAMPLES = {name: dict(importer.example) for name, importer in Importer.family.classes().items() if importer.example}
FUZZ = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ABSURD = [math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0, 1e300, -1e300, 5e-324, 0.5, 1.0, 50.0, 1e9]


def answers(content, *, choice=None):
    """The curves in the files `content`, checked; None where they were refused in one sentence."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        for name, data in content.items():
            (log / name).parent.mkdir(parents=True, exist_ok=True)
            (log / name).write_bytes(data)
        path = log / next(iter(content)) if len(content) == 1 else log
        try:
            if choice is None:
                list_columns(path)
            curves = read_curves(path, choice=choice)
        except (DataError, UsageError) as error:
            sentence = str(error).replace(str(log), "LOG")
            assert sentence
            assert "\n" not in sentence
            assert error.exit_code in (2, 3)
            return None
    assert curves
    for curve in curves:
        low, high = curve.bounds
        assert len(curve)
        assert np.isfinite(curve.compute).all()
        assert (curve.compute >= 0).all()
        assert (np.diff(curve.compute) >= 0).all()
        assert ((curve.reward >= low) & (curve.reward <= high)).all()
        assert math.isfinite(curve.wasted_compute)
    return curves


def largest(content):
    return max(content, key=lambda name: len(content[name]))


@pytest.mark.parametrize("name", EXAMPLES)
@FUZZ
@given(data=st.binary(max_size=400))
@example(data=b"")
@example(data=b"\0" * 100)
@example(data=b"\xff" * 100)
def test_random_bytes_under_its_name(name, data):
    answers(EXAMPLES[name] | {largest(EXAMPLES[name]): data})


@pytest.mark.parametrize("name", EXAMPLES)
@FUZZ
@given(data=st.binary(max_size=400), kept=st.integers(1, 60))
def test_random_bytes_behind_its_signature(name, data, kept):
    file = largest(EXAMPLES[name])
    answers(EXAMPLES[name] | {file: EXAMPLES[name][file][:kept] + data})


@pytest.mark.parametrize("name", EXAMPLES)
@FUZZ
@given(draw=st.data())
def test_bytes_overwritten_removed_or_doubled(name, draw):
    file = largest(EXAMPLES[name])
    content = bytearray(EXAMPLES[name][file])
    for _ in range(draw.draw(st.integers(1, 4))):
        start = draw.draw(st.integers(0, len(content)))
        stop = draw.draw(st.integers(start, min(len(content), start + 20)))
        content[start:stop] = draw.draw(st.sampled_from([b"", bytes(content[start:stop]) * 2]) | st.binary(max_size=20))
    answers(EXAMPLES[name] | {file: bytes(content)})


# One log in every format: rows of (step, reward, elapsed seconds), with what runs do to them.

rows = st.lists(
    st.tuples(
        st.integers(-3, 12) | st.sampled_from([2**31, 2**62, -(2**62)]),
        st.floats(0, 1, width=32) | st.sampled_from(ABSURD),
        st.floats(0, 1e6, width=32) | st.sampled_from(ABSURD),
    ),
    max_size=12,
)


def as_jsonl(rows):
    lines = ({"step": step, "eval/acc": reward, "elapsed_s": elapsed_s} for step, reward, elapsed_s in rows)
    return {"log.jsonl": "".join(json.dumps(line) + "\n" for line in lines).encode()}


def as_csv(rows):
    lines = ["step,eval/acc,elapsed_s", *(f"{step},{reward!r},{elapsed_s!r}" for step, reward, elapsed_s in rows)]
    return {"log.csv": "".join(line + "\n" for line in lines).encode()}


def as_trainer_state(rows):
    history = [{"step": step, "eval_reward": reward, "elapsed_s": elapsed_s} for step, reward, elapsed_s in rows]
    return {"trainer_state.json": json.dumps({"global_step": len(rows), "log_history": history}).encode()}


def as_tensorboard(rows, *, start=0.0):
    records = [encoded(1, start) + encoded(3, "brain.Event:2")]
    for step, reward, elapsed_s in rows:
        value = encoded(1, "eval/acc") + encoded(8, encoded(1, 2) + encoded(6, float(reward)))
        records.append(encoded(1, start + elapsed_s) + encoded(2, step) + encoded(5, encoded(1, value)))
    return {f"events.out.tfevents.{start:.0f}": b"".join(map(framed, records))}


def as_wandb(rows):
    cells = ({"step": step, "eval/acc": json.dumps(reward), "elapsed_s": json.dumps(elapsed_s)} for step, reward, elapsed_s in rows)
    return {"run-a.wandb": test_wandb.log_of([test_wandb.history(**row) for row in cells])}


def as_swanlab(rows):
    records = []
    for step, reward, elapsed_s in rows:
        for name, number in (("eval/acc", reward), ("elapsed_s", elapsed_s)):
            records.append(encoded(13, encoded(1, name) + encoded(2, step) + encoded(5, encoded(1, float(number)))))
    return {"backup.swanlab": test_swanlab.log_of(records)}


FORMATS = {
    "jsonl": as_jsonl,
    "csv": as_csv,
    "trainer_state": as_trainer_state,
    "tensorboard": as_tensorboard,
    "wandb": as_wandb,
    "swanlab": as_swanlab,
}
TEXTS = ["jsonl", "csv", "wandb", "swanlab"]


@pytest.mark.parametrize("name", FORMATS)
@FUZZ
@given(rows=rows)
@example(rows=[])
@example(rows=[(1, 0.5, 10.0)])
@example(rows=[(1, 0.5, 10.0)] * 5)
@example(rows=[(5 - step, 0.5, 10.0) for step in range(5)])
@example(rows=[(step, math.nan, math.inf) for step in range(5)])
@example(rows=[(step, 1e300, 1e300) for step in range(5)])
@example(rows=[(2**62, 0.5, 1e300), (-(2**62), 0.5, -1e300)])
def test_absurd_rows(name, rows):
    """Every point is one of the rows that hold numbers, whatever order, repetition and size they have."""
    for choice in (None, Choice(x="step"), Choice(gpus=8)):
        curves = answers(FORMATS[name](rows), choice=choice)
        if curves is not None:
            rewards = {float(reward) for _, reward, _ in rows if math.isfinite(reward)}
            assert {reward for curve in curves for reward in curve.reward.tolist()} <= rewards


@pytest.mark.parametrize("name", FORMATS)
@FUZZ
@given(steps=st.lists(st.integers(1, 20), min_size=1, max_size=20, unique=True))
def test_the_same_rows_give_the_same_curve_in_every_format(name, steps):
    """Increasing steps: the curve is the rows, to the last digit."""
    clean = [(step, step / 32, 10.0 * step) for step in sorted(steps)]
    (curve,) = answers(FORMATS[name](clean), choice=Choice(x="step"))
    assert curve.compute.tolist() == [step for step, _, _ in clean]
    assert curve.reward.tolist() == [reward for _, reward, _ in clean]


def as_two_files(name, first, again):
    """A log that was appended to, or a second file where each start of a run has its own."""
    if name == "tensorboard":
        return as_tensorboard(first) | as_tensorboard(again, start=1e6)
    if name == "wandb":
        return {
            f"offline-run-2026010{start}_120000-a/{file}": content
            for start, rows in enumerate((first, again))
            for file, content in as_wandb(rows).items()
        }
    return FORMATS[name](first + again)


@pytest.mark.parametrize("name", ["jsonl", "csv", "trainer_state", "tensorboard", "wandb"])
@FUZZ
@given(num_first=st.integers(2, 8), back=st.integers(0, 8), num_again=st.integers(1, 8))
@example(num_first=2, back=1, num_again=1)
@example(num_first=2, back=1, num_again=2)
def test_a_resume_gives_the_last_lineage_in_every_format(name, num_first, back, num_again):
    """The first run's steps up to the checkpoint, then the second's; what was spent in all is useful or wasted."""
    checkpoint = max(num_first - back, 0)
    first = [(step, step / 64, 10.0 * step) for step in range(1, num_first + 1)]
    again = [(step, 0.5 + step / 64, 10.0 * (step - checkpoint)) for step in range(checkpoint + 1, checkpoint + num_again + 1)]
    (curve,) = answers(as_two_files(name, first, again), choice=Choice(x="elapsed_s"))
    kept = [reward for step, reward, _ in first if step <= checkpoint] + [reward for _, reward, _ in again]
    assert curve.reward.tolist() == kept
    assert curve.compute[-1] + curve.wasted_compute == pytest.approx(10.0 * (num_first + num_again))


@pytest.mark.parametrize("name", ["jsonl", "csv"])
@FUZZ
@given(draw=st.data())
def test_ragged_rows(name, draw):
    """Cells missing, too many, or texts: no cell slips into its neighbour's column."""
    num_cells = draw.draw(st.lists(st.integers(0, 5), min_size=1, max_size=10))
    cells = [[str(step), f"{step / 64}", f"{10 * step}", "0.99", "x"][:number] for step, number in enumerate(num_cells, start=1)]
    if name == "csv":
        content = {"log.csv": "\n".join(["step,eval/acc,elapsed_s", *map(",".join, cells)]).encode() + b"\n"}
    else:
        content = {
            "log.jsonl": "".join(
                json.dumps(dict(zip(["step", "eval/acc", "elapsed_s"], row, strict=False))) + "\n" for row in cells
            ).encode()
        }
    curves = answers(content)
    if curves is not None:
        (curve,) = curves
        assert {round(64 * reward) for reward in curve.reward.tolist()} <= set(range(1, len(cells) + 1))
        assert 0.99 not in curve.reward.tolist()


@FUZZ
@given(value=st.floats(width=32), wall_time=st.floats(), step=st.integers(-(2**63), 2**63 - 1))
def test_tensorboard_numbers_come_back_bit_for_bit(value, wall_time, step):
    content = encoded(1, encoded(1, "eval/acc") + b"\x15" + struct.pack("<f", value))
    event = encoded(1, wall_time) + encoded(2, step) + encoded(5, content)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tfevents"
        path.write_bytes(framed(encoded(1, 0.0) + encoded(3, "brain.Event:2")) + framed(event))
        columns = {column.name: column for column in list_columns(path).columns}
    for name, number in (("eval/acc", value), ("wall_time", wall_time), ("step", float(step))):
        if name in columns and math.isfinite(number):
            assert columns[name].first == number
