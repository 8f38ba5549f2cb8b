"""W&B logs on disk: files of the real library, restarts, names, damage, blocks."""

import zlib
from contextlib import contextmanager

import numpy as np
import pytest

from scalerl.core.errors import DataError
from scalerl.importers import Choice, list_columns, read_curves
from scalerl.importers.framing.protobuf import encoded
from tests.importers.logs import said

SIGNATURE = b":W&B\xe1\xbe\x00"
BLOCK = 32 * 1024


def log_of(records):
    """Records in LevelDB's framing, cut at blocks of 32 KiB; written here anew, since the reader is what is tested."""
    content = bytearray(SIGNATURE)
    for record in records:
        kinds = (1, 2)
        while True:
            room = BLOCK - len(content) % BLOCK
            if room < 7:
                content += bytes(room)
                continue
            part, record = record[: room - 7], record[room - 7 :]
            kind = kinds[bool(record)]
            content += zlib.crc32(bytes([kind]) + part).to_bytes(4, "little") + len(part).to_bytes(2, "little") + bytes([kind]) + part
            kinds = (4, 3)
            if not record:
                break
    return bytes(content)


def history(**cells):
    return encoded(2, b"".join(encoded(1, encoded(2, name) + encoded(16, str(cell))) for name, cell in cells.items()))


def run_record(run_id, name):
    return encoded(17, encoded(1, run_id) + encoded(8, name))


def run_folder(parent, start, run_id, name, rows):
    folder = parent / f"offline-run-{start}-{run_id}"
    folder.mkdir(parents=True)
    path = folder / f"run-{run_id}.wandb"
    path.write_bytes(log_of([run_record(run_id, name), *(history(**row) for row in rows)]))
    return path


ROWS = [{"_step": step, "gpu_hours": 10.0 * step, "eval/acc": step / 4} for step in (1, 2, 3)]


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """Starts a run of the real library that writes to disk only."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    settings = wandb.Settings(console="off", silent=True, x_disable_stats=True, disable_git=True, disable_code=True)

    @contextmanager
    def started(**options):
        with wandb.init(dir=tmp_path, project="curves", settings=settings, **options) as run:
            yield run
        wandb.teardown()  # `finish` returns before the last records are on disk

    return started


def test_a_run_of_the_real_library(offline, tmp_path):
    with offline(name="baseline") as run:
        for step in range(1, 6):
            run.log({"train/global_step": step, "perf": {"gpu_hours": 8.0 * step}, "note": "text", "big": 2**60, "ok": True})
            run.log({"train/global_step": step, "eval/acc": float("nan") if step == 4 else step / 8})
    with offline(name="baseline") as run:
        run.log({"train/global_step": 1, "perf": {"gpu_hours": 8.0}, "eval/acc": 0.5})
    curves = read_curves(tmp_path / "wandb", choice=Choice(x="perf/gpu_hours"))
    long, short = sorted(curves, key=len, reverse=True)
    assert (long.compute.tolist(), long.reward.tolist()) == ([8, 16, 24, 40], [0.125, 0.25, 0.375, 0.625])
    assert said(long.notes, "1 value of 'eval/acc' left out: not a finite number")
    assert (short.compute.tolist(), short.reward.tolist()) == ([8], [0.5])
    assert {long.name[:10], short.name[:10]} == {"baseline ("}
    facts = {column.name: column for column in list_columns(tmp_path / "wandb").columns}
    assert facts["big"].first == 2.0**60
    assert (facts["note"].numbers, facts["note"].text) == (0, "text")


def test_a_file_of_the_real_library_is_read_alone_and_cut(offline, tmp_path):
    with offline(name="baseline") as run:
        for step in range(1, 31):
            run.log({"gpu_hours": 8.0 * step, "eval/acc": step / 32})
    (path,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    (whole,) = read_curves(path)
    assert (whole.name, whole.reward.tolist()) == ("baseline", [step / 32 for step in range(1, 31)])
    content = path.read_bytes()
    num_noticed = 0
    for length in range(len(content) // 2, len(content) // 2 + 4):  # one of them at most lies between two records
        path.write_bytes(content[:length])
        (curve,) = read_curves(path)
        assert 0 < len(curve) < 30
        assert curve.reward.tolist() == whole.reward.tolist()[: len(curve)]
        num_noticed += said(curve.notes, "the last record was cut short")
    assert num_noticed >= 3


def test_our_own_tracker(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    from scalerl.accounting.trackers.wandb import Wandb

    log = Wandb(mode="offline").build(tmp_path, config={"seed": 0})
    for step in (1, 2, 3):
        log.log({"pass_rate": step / 4, "flops": 1e9 * step}, step=step)
    log.close()
    wandb.teardown()
    (curve,) = read_curves(tmp_path / "wandb")
    assert (curve.name, curve.compute.tolist(), curve.reward.tolist()) == (tmp_path.name, [1e9, 2e9, 3e9], [0.25, 0.5, 0.75])


def test_a_run_started_twice_is_one_run_and_the_last_lineage_wins(tmp_path):
    first = [{"train/global_step": step, "elapsed_s": 10 * step, "eval/acc": step / 10} for step in (1, 2, 3, 4, 5)]
    again = [{"train/global_step": step, "elapsed_s": 10 * (step - 3) + 2, "eval/acc": step / 10 - 0.02} for step in (4, 5, 6)]
    run_folder(tmp_path, "20260101_130000", "x7k2p9qd", "resumed", again)
    run_folder(tmp_path, "20260101_120000", "x7k2p9qd", "resumed", first)
    (curve,) = read_curves(tmp_path)
    assert curve.name == "resumed"
    assert curve.compute.tolist() == [10, 20, 30, 42, 52, 62]
    assert curve.reward.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.38, 0.48, 0.58])
    assert curve.wasted_compute == 20


def test_latest_run_is_not_counted_twice(tmp_path):
    path = run_folder(tmp_path, "20260101_120000", "x7k2p9qd", "one", ROWS)
    (tmp_path / "latest-run").symlink_to(path.parent, target_is_directory=True)
    (curve,) = read_curves(tmp_path)
    assert (curve.compute.tolist(), curve.wasted_compute) == ([10, 20, 30], 0)


def test_rows_of_one_step_are_joined_and_the_last_value_wins(tmp_path):
    rows = [
        {"_step": 1, "perf/total_num_tokens": 600, "perf/time_per_step": 2.0},
        {"_step": 1, "perf/throughput": 100.0, "val-core/math/acc/mean@4": 0.9},
        {"_step": 1, "val-core/math/acc/mean@4": 0.25},
        {"_step": 2, "perf/total_num_tokens": 900, "perf/time_per_step": 3.0, "perf/throughput": 100.0, "val-core/math/acc/mean@4": 0.5},
    ]
    path = run_folder(tmp_path, "20260101_120000", "x7k2p9qd", "verl", rows)
    assert list_columns(path).rows == 2
    (curve,) = read_curves(path)
    assert curve.compute.tolist() == pytest.approx([3 * 2 / 3600, 3 * 5 / 3600])
    assert curve.reward.tolist() == [0.25, 0.5]


def test_items_with_types_are_read_as_those_in_json(tmp_path):
    """The later form of an item: integer (zigzag), number, text, instead of JSON."""
    items = [
        ("gpu_hours", encoded(5, 2 * 8)),
        ("eval/acc", encoded(6, 0.25)),
        ("delta", encoded(5, 2 * 3 - 1)),
        ("note", encoded(7, "text")),
    ]
    record = encoded(2, b"".join(encoded(1, encoded(1, name) + value) for name, value in items))
    path = tmp_path / "run-a.wandb"
    path.write_bytes(log_of([record]))
    (curve,) = read_curves(path)
    assert (curve.compute.tolist(), curve.reward.tolist()) == ([8], [0.25])
    assert {column.name: column.first for column in list_columns(path).columns}["delta"] == -3


@pytest.mark.parametrize("length", [*range(BLOCK - 40, BLOCK + 10), 3 * BLOCK])
def test_records_at_and_over_the_end_of_a_block(tmp_path, length):
    filler = encoded(4, bytes(length - 4))  # some output, of that length with its own header
    path = tmp_path / "run-a.wandb"
    path.write_bytes(log_of([history(**ROWS[0]), filler, history(**ROWS[1]), history(**ROWS[2])]))
    (curve,) = read_curves(path)
    assert curve.reward.tolist() == [0.25, 0.5, 0.75]
    assert not said(curve.notes, "left out")


def test_a_damaged_record_is_skipped_and_told(tmp_path):
    path = run_folder(tmp_path, "20260101_120000", "x7k2p9qd", "one", ROWS)
    content = bytearray(path.read_bytes())
    content[content.index(b"0.5")] ^= 0x01
    path.write_bytes(content)
    (curve,) = read_curves(path)
    assert curve.reward.tolist() == [0.25, 0.75]
    assert said(curve.notes, path.name, "1 damaged place left out")


def test_a_record_whose_middle_is_damaged_is_not_patched_together(tmp_path):
    rows = [
        {"gpu_hours": 1, "eval/acc": 0.125},
        {"gpu_hours": 2, "eval/acc": 0.25, "x": 1, "padding": "9" * 3 * BLOCK},
        {"gpu_hours": 3, "eval/acc": 0.5},
    ]
    path = tmp_path / "run-a.wandb"
    content = bytearray(log_of([history(**row) for row in rows]))
    content[BLOCK + 100] ^= 0xFF
    path.write_bytes(content)
    (curve,) = read_curves(path)
    assert (curve.compute.tolist(), curve.reward.tolist()) == ([1, 3], [0.125, 0.5])
    assert said(curve.notes, "1 damaged place left out")


def test_zeros_behind_a_machine_that_went_down(tmp_path):
    path = run_folder(tmp_path, "20260101_120000", "x7k2p9qd", "one", ROWS)
    path.write_bytes(path.read_bytes() + bytes(5000))
    (curve,) = read_curves(path)
    assert len(curve) == 3
    assert said(curve.notes, "cut short")


def test_files_that_hold_nothing(tmp_path):
    path = tmp_path / "run-a.wandb"
    path.write_bytes(log_of([run_record("a", "empty")]))
    with pytest.raises(DataError, match="nothing is logged in it"):
        read_curves(path)
    (tmp_path / "run-b.wandb").touch()
    with pytest.raises(DataError, match="nothing is logged in it"):
        read_curves(tmp_path)
    draw = np.random.default_rng(0)
    (tmp_path / "run-b.wandb").write_bytes(SIGNATURE + draw.bytes(1000))
    with pytest.raises(DataError, match=r"nothing is logged in it \(run-b.wandb: "):
        read_curves(tmp_path / "run-b.wandb")
