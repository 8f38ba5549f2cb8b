"""TensorBoard: files of the real writers, restarts, damage, tensors, tags with steps of their own."""

import struct

import numpy as np
import pytest

from scalerl.core.errors import DataError
from scalerl.core.units import SECONDS
from scalerl.importers import Choice, list_columns, read_curves
from scalerl.importers.framing.protobuf import encoded
from scalerl.importers.framing.tfrecord import framed
from tests.importers.logs import said

ACCURACY = "val/acc"


def version(wall_time):
    return framed(encoded(1, float(wall_time)) + encoded(3, "brain.Event:2"))


def scalars(wall_time, step, **tags):
    """An event with simple values, field 2 of a summary's value."""
    values = [encoded(1, encoded(1, tag) + b"\x15" + struct.pack("<f", value)) for tag, value in tags.items()]
    return framed(encoded(1, float(wall_time)) + encoded(2, step) + encoded(5, b"".join(values)))


def scalar(wall_time, step, value, tag=ACCURACY):
    return scalars(wall_time, step, **{tag: value})


def event_file(folder, start, points):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events.out.tfevents.{start:010d}.host.1.0"
    path.write_bytes(version(start) + b"".join(scalar(start + elapsed, step, value) for elapsed, step, value in points))
    return path


FULL = [(10, 1, 0.25), (20, 2, 0.5), (30, 3, 0.75)]


def test_i4_a_whole_file(tmp_path):
    path = event_file(tmp_path, 1000, FULL)
    assert path.stat().st_size == 175
    (curve,) = read_curves(path)
    assert (curve.axis, curve.compute.tolist(), curve.reward.tolist()) == (SECONDS, [10, 20, 30], [0.25, 0.5, 0.75])
    (curve,) = read_curves(path, choice=Choice(x="wall_time"))
    assert curve.compute.tolist() == [1010, 1020, 1030]
    (curve,) = read_curves(path, choice=Choice(x="step"))
    assert curve.compute.tolist() == [1, 2, 3]


def test_i4_a_file_cut_by_a_killed_job(tmp_path):
    path = event_file(tmp_path, 1000, FULL)
    path.write_bytes(path.read_bytes()[:-5])
    (curve,) = read_curves(path)
    assert curve.reward.tolist() == [0.25, 0.5]
    assert said(curve.notes, path.name, "the last record was cut short")


def test_i4_a_damaged_record_is_skipped_and_told(tmp_path):
    path = event_file(tmp_path, 1000, FULL)
    content = bytearray(path.read_bytes())
    content[117] ^= 0xFF  # in the tag of step 2
    path.write_bytes(content)
    (curve,) = read_curves(path, choice=Choice(x="step"))
    assert (curve.compute.tolist(), curve.reward.tolist()) == ([1, 3], [0.25, 0.75])
    assert said(curve.notes, path.name, "1 damaged place left out")
    assert [column.name for column in list_columns(path).columns if "val" in column.name] == [ACCURACY]


@pytest.mark.parametrize("byte", range(87, 99))  # length and checksum in the header of step 2
def test_i4_behind_a_damaged_length_the_next_record_is_found(tmp_path, byte):
    path = event_file(tmp_path, 1000, FULL)
    content = bytearray(path.read_bytes())
    content[byte] ^= 0x55
    path.write_bytes(content)
    (curve,) = read_curves(path, choice=Choice(x="step"))
    assert (curve.compute.tolist(), curve.reward.tolist()) == ([1, 3], [0.25, 0.75])
    assert said(curve.notes, "1 damaged place left out")


def test_i4_an_empty_file_and_a_stranger_are_told(tmp_path):
    event_file(tmp_path, 1000, FULL)
    (tmp_path / "events.out.tfevents.0000000900.host.1.0").touch()
    (tmp_path / "local.trace").write_bytes(b"{}")
    (curve,) = read_curves(tmp_path)
    assert curve.reward.tolist() == [0.25, 0.5, 0.75]
    assert said(curve.notes, "events.out.tfevents.0000000900.host.1.0 holds no scalars")
    assert said(curve.notes, "1 file beside the event files left out, such as local.trace")


def test_i2_the_last_lineage_of_two_files_wins(tmp_path):
    event_file(tmp_path, 1000, FULL)
    event_file(tmp_path, 2000, [(10, 2, 0.4375), (20, 3, 0.625), (30, 4, 0.6875)])
    (curve,) = read_curves(tmp_path)
    assert (curve.name, curve.compute.tolist()) == (tmp_path.name, [10, 20, 30, 40])
    assert curve.reward.tolist() == [0.25, 0.4375, 0.625, 0.6875]
    assert curve.wasted_compute == 20
    assert said(curve.notes, "resumed 1 time, first from step 2", "20 s")
    (curve,) = read_curves(tmp_path, choice=Choice(x="step"))
    assert (curve.compute.tolist(), curve.wasted_compute) == ([1, 2, 3, 4], 2)


def test_the_pause_before_a_resume_is_not_computed(tmp_path):
    start = 1_700_000_000
    event_file(tmp_path, start, FULL)
    event_file(tmp_path, start + 14 * 3600, [(10, 4, 0.8), (20, 5, 0.85)])
    for x in (None, "wall_time"):
        (curve,) = read_curves(tmp_path, choice=Choice(x=x))
        assert curve.compute.tolist() == [10, 20, 30, 40, 50]
        assert curve.wasted_compute == 0


def test_files_that_are_open_together_are_one_session(tmp_path):
    """Trainer and evaluator write side by side; in the order of the files' names the evaluations would be a restart."""
    trainer = b"".join(scalar(1000 + 10 * step, step, 0.01 * step, tag="train/loss") for step in range(1, 21))
    (tmp_path / "events.out.tfevents.1.trainer").write_bytes(version(1000) + trainer)
    evaluator = b"".join(scalar(1005 + 10 * step, step, 0.02 * step) for step in (5, 10, 15))
    (tmp_path / "events.out.tfevents.2.evaluator").write_bytes(version(1001) + evaluator)
    (curve,) = read_curves(tmp_path)
    assert curve.compute.tolist() == [50, 100, 150]
    assert not said(curve.notes, "resumed")


def test_an_evaluation_after_training_is_no_restart(tmp_path):
    trainer = b"".join(scalar(1000 + 10 * step, step, 0.01 * step, tag="train/loss") for step in range(1, 21))
    (tmp_path / "events.out.tfevents.1.trainer").write_bytes(version(1000) + trainer)
    evaluator = b"".join(scalar(9000 + step, step, 0.02 * step) for step in (1, 2, 3, 5, 20))
    (tmp_path / "events.out.tfevents.2.evaluator").write_bytes(version(9000) + evaluator)
    for x, unit in ((None, 10), ("step", 1)):
        (curve,) = read_curves(tmp_path, choice=Choice(x=x))
        assert curve.compute.tolist() == [1 * unit, 2 * unit, 3 * unit, 5 * unit, 20 * unit]
        assert curve.wasted_compute == 0


def test_a_late_value_belongs_to_its_step(tmp_path):
    events = [scalar(1000 + 10 * step, step, 0.5, tag="train/loss") for step in range(1, 31)]
    for place, step in ((13, 10), (24, 20)):  # the asynchronous evaluation of step 10 ends in step 13
        events.insert(place, scalar(1000 + 10 * place + 5, step, step / 100))
    (tmp_path / "tfevents").write_bytes(version(1000) + b"".join(events))
    for x, unit in ((None, 10), ("step", 1)):
        (curve,) = read_curves(tmp_path / "tfevents", choice=Choice(x=x))
        assert curve.compute.tolist() == [10 * unit, 20 * unit]
        assert not said(curve.notes, "resumed")


def test_a_tag_that_counts_epochs_is_placed_at_the_step_reached(tmp_path):
    events = []
    for step in range(1, 301):
        events.append(scalar(1000 + 10 * step, step, 0.5, tag="train/loss"))
        if step % 100 == 0:
            events.append(scalar(1000 + 10 * step + 1, step // 100, step / 1000))
    (tmp_path / "tfevents").write_bytes(version(1000) + b"".join(events))
    for x, unit in ((None, 10), ("step", 1)):
        (curve,) = read_curves(tmp_path / "tfevents", choice=Choice(x=x))
        assert curve.compute.tolist() == [100 * unit, 200 * unit, 300 * unit]
        assert said(curve.notes, f"'{ACCURACY}' of {tmp_path.name} counts steps of its own")


def test_a_restart_within_one_file_is_seen(tmp_path):
    steps = [1, 2, 3, 4, 3, 4, 5]
    events = [scalars(1000 + 10 * place, step, **{"train/loss": 0.1, ACCURACY: place / 10}) for place, step in enumerate(steps, start=1)]
    (tmp_path / "tfevents").write_bytes(version(1000) + b"".join(events))
    (curve,) = read_curves(tmp_path / "tfevents", choice=Choice(x="step"))
    assert curve.reward.tolist() == pytest.approx([0.1, 0.2, 0.5, 0.6, 0.7])
    assert curve.wasted_compute == 2


def test_a_folder_of_runs_is_a_curve_for_each(tmp_path):
    for name in ("lr-1e-6", "lr-3e-6"):
        event_file(tmp_path / name, 1000, FULL)
    event_file(tmp_path / "sweep" / "a.b", 1000, FULL)
    curves = read_curves(tmp_path)
    assert sorted(curve.name for curve in curves) == ["lr-1e-6", "lr-3e-6", "sweep/a.b"]
    assert all(curve.compute.tolist() == [10, 20, 30] for curve in curves)


def test_several_tags_of_one_event_are_a_row(tmp_path):
    events = [scalars(1000 + 10 * step, step, **{"step_time": 2.0, "tokens": 100.0 * step, ACCURACY: step / 10}) for step in (1, 2, 3)]
    path = tmp_path / "tfevents"
    path.write_bytes(version(1000) + b"".join(events))
    (curve,) = read_curves(path)
    assert curve.compute.tolist() == [2, 4, 6]
    assert list_columns(path).rows == 3


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("packing", ["numbers", "content"])
def test_scalars_as_tensors(tmp_path, dtype, packing):
    tensor_pb2 = pytest.importorskip("tensorboard.compat.proto.tensor_pb2")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.util.tensor_util import make_tensor_proto

    numbers = np.array([0, 1, 1], dtype)
    records = []
    for step, number in enumerate(numbers, start=1):
        tensor = make_tensor_proto(number)
        if packing == "content":
            tensor = tensor_pb2.TensorProto(dtype=tensor.dtype, tensor_shape=tensor.tensor_shape, tensor_content=number.tobytes())
        event = Event(wall_time=1000 + step, step=step)
        event.summary.value.add(tag=ACCURACY, tensor=tensor)
        event.summary.value.add(tag="several", tensor=make_tensor_proto(np.arange(3, dtype=dtype)))
        records.append(framed(event.SerializeToString()))
    (tmp_path / "tfevents").write_bytes(version(1000) + b"".join(records))
    (curve,) = read_curves(tmp_path)
    assert curve.reward.tolist() == numbers.tolist()
    assert "several" not in {column.name for column in list_columns(tmp_path).columns}


def test_values_of_the_real_writer_equal_those_of_the_real_reader(tmp_path):
    """More points than the stock reader keeps by default, beside texts, histograms and tensors."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    draw = np.random.default_rng(0)
    num_steps = 12_000
    values = draw.uniform(0, 1, (num_steps, 3))
    writer = EventFileWriter(str(tmp_path))
    for step, (accuracy, loss, kl) in enumerate(values.tolist()):
        summary = Summary(value=[Summary.Value(tag="eval/accuracy", simple_value=accuracy), Summary.Value(tag="loss", simple_value=loss)])
        if step % 100 == 0:
            summary.value.add(tag="weights", histo=HistogramProto(bucket=draw.normal(size=30)))
            summary.MergeFrom(scalar_pb("kl", kl))
        writer.add_event(Event(wall_time=1.7e9 + step, step=step, summary=summary))
    writer.close()
    reference = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0, "tensors": 0})
    reference.Reload()
    (curve,) = read_curves(tmp_path, choice=Choice(x="step"))
    assert curve.reward.tolist() == [event.value for event in reference.Scalars("eval/accuracy")]
    assert curve.compute.tolist() == list(range(num_steps))
    facts = {column.name: column for column in list_columns(tmp_path).columns}
    assert facts["loss"].last == reference.Scalars("loss")[-1].value
    assert facts["kl"].numbers == num_steps // 100
    assert facts["kl"].first == pytest.approx(values[0, 2], abs=1e-7)


def test_a_folder_of_torch(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    for steps in ((1, 2, 3), (3, 4)):
        with tensorboard.SummaryWriter(tmp_path) as writer:
            for step in steps:
                writer.add_scalar("eval/accuracy", step / 8 + len(steps) / 64, step)
                writer.add_scalar("gpu_hours", 2.0 * step, step)
    (curve,) = read_curves(tmp_path)
    assert curve.compute.tolist() == [2, 4, 6, 8]
    assert curve.reward.tolist() == [1 / 8 + 3 / 64, 2 / 8 + 3 / 64, 3 / 8 + 2 / 64, 4 / 8 + 2 / 64]


def test_a_folder_of_our_own_tracker(tmp_path):
    pytest.importorskip("tensorboard")
    from scalerl.accounting.trackers._tensorboard import TensorboardLog

    log = TensorboardLog(tmp_path, {"seed": 0})
    for step in (1, 2, 3):
        log.log({"time_s": 1000.0 + step, "pass_rate": step / 4, "tokens": 100.0}, step=step)
    log.close()
    (curve,) = read_curves(tmp_path, choice=Choice(x="step"))
    assert (curve.compute.tolist(), curve.reward.tolist()) == ([1, 2, 3], [0.25, 0.5, 0.75])


def test_not_finite_values_are_left_out_and_counted(tmp_path):
    path = event_file(tmp_path, 1000, [(10, 1, 0.25), (20, 2, float("nan")), (30, 3, float("inf")), (40, 4, 0.5)])
    (curve,) = read_curves(path)
    assert (curve.compute.tolist(), curve.reward.tolist()) == ([10, 40], [0.25, 0.5])
    assert said(curve.notes, "2 values", "not a finite number")


def test_records_longer_than_a_chunk_are_read(tmp_path):
    image = encoded(1, encoded(1, "image") + encoded(4, bytes(9_000_000)))
    content = version(1000) + scalar(1010, 1, 0.25) + framed(encoded(1, 1011.0) + encoded(2, 1) + encoded(5, image)) + scalar(1020, 2, 0.5)
    (tmp_path / "tfevents").write_bytes(content)
    (curve,) = read_curves(tmp_path / "tfevents")
    assert (curve.compute.tolist(), curve.reward.tolist()) == ([10, 20], [0.25, 0.5])
    assert not said(curve.notes, "left out")


def test_a_file_without_scalars(tmp_path):
    (tmp_path / "tfevents").write_bytes(version(1000))
    with pytest.raises(DataError, match="it holds no scalars"):
        read_curves(tmp_path)


def test_a_file_converted_from_an_older_log_has_no_time_since_it_was_opened(tmp_path):
    (tmp_path / "tfevents").write_bytes(version(2e9) + b"".join(scalar(1.7e9 + elapsed, step, value) for elapsed, step, value in FULL))
    (curve,) = read_curves(tmp_path / "tfevents")
    assert (curve.axis, curve.compute.tolist()) == (SECONDS, [10, 20, 30])
    assert said(curve.notes, "compute: 'wall_time'")
