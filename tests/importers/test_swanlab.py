"""SwanLab, by the published format alone: the package is not at hand, so its files are written here."""

import zlib

import pytest

from scalerl.core.errors import DataError
from scalerl.core.units import SECONDS
from scalerl.importers import Choice, list_columns, read_curves
from scalerl.importers.framing.protobuf import encoded
from tests.importers.logs import said


def log_of(records, *, version=2):
    framed = (
        zlib.crc32(b"\x01" + record).to_bytes(4, "little") + len(record).to_bytes(2, "little") + b"\x01" + record for record in records
    )
    return b":SWL\xd6\xe1" + bytes([version]) + b"".join(framed)


def scalar(key, step, number, *, seconds=0, nanoseconds=0):
    """Fields that are 0 are not written, as proto3 does."""
    timestamp = encoded(1, seconds) + (encoded(2, nanoseconds) if nanoseconds else b"")
    content = (
        encoded(1, key) + (encoded(2, step) if step else b"") + encoded(4, timestamp) + encoded(5, encoded(1, number) if number else b"")
    )
    return encoded(13, content)


def write(folder, records):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "backup.swanlab").write_bytes(log_of(records))
    return folder / "backup.swanlab"


def test_scalars_of_one_step_are_a_row(tmp_path):
    records = []
    for step in range(4):
        records += [scalar("gpu_hours", step, 8.0 * step, seconds=1000 + step), scalar("eval/acc", step, step / 8, seconds=1000 + step)]
    path = write(tmp_path / "run-20260101-a1", records)
    (curve,) = read_curves(path)
    assert curve.name == "run-20260101-a1"
    assert (curve.compute.tolist(), curve.reward.tolist()) == ([0, 8, 16, 24], [0, 0.125, 0.25, 0.375])
    assert list_columns(path).rows == 4


def test_time_stamps_serve_as_clock(tmp_path):
    start = 1_700_000_000
    records = [scalar("eval/acc", step, step / 8, seconds=start + 10 * step, nanoseconds=500_000_000) for step in (1, 2, 3)]
    (curve,) = read_curves(write(tmp_path / "a", records))
    assert (curve.axis, curve.compute.tolist()) == (SECONDS, [10, 20, 30])


def test_a_folder_of_runs_is_a_curve_for_each(tmp_path):
    for name in ("run-a", "run-b"):
        write(tmp_path / name, [scalar("eval/acc", step, step / 8, seconds=1000 + step) for step in (1, 2, 3)])
    curves = read_curves(tmp_path, choice=Choice(x="step"))
    assert [curve.name for curve in curves] == ["run-a", "run-b"]


def test_a_cut_file_is_read_to_its_last_record(tmp_path):
    path = write(tmp_path / "a", [scalar("eval/acc", step, step / 8, seconds=1000 + step) for step in (1, 2, 3)])
    path.write_bytes(path.read_bytes()[:-3])
    (curve,) = read_curves(path, choice=Choice(x="step"))
    assert curve.reward.tolist() == [0.125, 0.25]
    assert said(curve.notes, "the last record was cut short")


def test_the_first_version_is_refused(tmp_path):
    path = tmp_path / "backup.swanlab"
    path.write_bytes(log_of([b'{"key": "eval/acc"}'], version=1))
    with pytest.raises(DataError, match="no log in a known format"):
        read_curves(path)
