"""A long run's log folds in time and at flat memory; the benchmark is the test, at two sizes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scalerl.accounting.curves import CurveFold
from scalerl.accounting.ledger import LedgerFold
from scalerl.core.events import LogReader
from scalerl.core.units import DEVICE_HOURS
from scalerl.records.events import Event
from scalerl.testing.synthetic import write_log

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "fold_speed.py"


@pytest.mark.parametrize("num_groups", [96_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_log_folds_at_60_us_a_group_and_flat_memory(num_groups):
    printed = subprocess.run([sys.executable, BENCHMARK, str(num_groups)], capture_output=True, text=True, check=True).stdout
    figures = json.loads(printed.splitlines()[-1])
    assert figures["events"] > num_groups
    # Processor time: the wall time of a shared machine is not the log's fault.
    assert figures["fold_cpu_s"] <= 60.0 * num_groups / 1_000_000
    assert figures["peak_growth_mb"] <= 40.0


def test_the_synthetic_logs_totals_follow_from_arithmetic(tmp_path):
    path = tmp_path / "events.jsonl"
    write_log(path, num_groups=200 * 48)
    ledger, curve = LedgerFold(), CurveFold()
    for entry in LogReader(path, Event):
        ledger.update(entry)
        curve.update(entry)
    rows = {(row.activity, row.detail): row for row in ledger.ledger().rows}
    assert ledger.ledger().elapsed_device_s == pytest.approx(200 * 10.0 * 2)
    assert rows["generate", ""].device_s == pytest.approx(200 * 10.0)
    assert rows["train", ""].device_s == pytest.approx(200 * 7.5)
    assert rows["idle", "waits for a batch"].device_s == pytest.approx(200 * 2.5)
    assert rows["unbooked", ""].device_s == pytest.approx(0.0, abs=0.01)  # a time in 2023 is stamped to .2 us, 10,000 times
    assert rows["train", ""].flops == pytest.approx(200 * 6e12)
    points = curve.curve("math", axis=DEVICE_HOURS)
    assert (points.compute * 3600.0).tolist() == pytest.approx([100 * 20.0, 200 * 20.0])
    assert points.reward.tolist() == pytest.approx([4100 / 16000, 4200 / 16000])
