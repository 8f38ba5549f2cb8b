"""metrics.jsonl holds every step and evaluation, and no tracker can end a run."""

import errno
import json
import math
from pathlib import Path

import pytest

from scalerl.accounting.metrics import MetricsFold
from scalerl.accounting.metrics_stream import MetricsStream
from scalerl.accounting.trackers import Tracker
from scalerl.core.errors import ScalerlError, UsageError
from scalerl.records.events import Evaluated
from scalerl.testing.synthetic_run import write_run


class Recording(Tracker):
    """Keeps rows in memory, or fails where it is told to."""

    fails_at: str = ""

    def build(self, run_folder, *, config):
        if self.fails_at == "package":
            raise UsageError("it needs a package")
        return _Log(self.fails_at, config)


class _Log:
    rows: list = []

    def __init__(self, fails_at, config):
        self.fails_at = fails_at
        _Log.rows = [("config", config)]
        self._fail("build")

    def log(self, row, *, step):
        self._fail("log")
        _Log.rows.append((step, row))

    def close(self):
        self._fail("close")
        _Log.rows.append("closed")

    def _fail(self, at):
        if self.fails_at == at:
            raise ConnectionError("no route\nto host")


def feed(stream, run):
    fold = MetricsFold()
    for entry in run.events():
        if row := fold.update(entry):
            stream.log_step(row)
        if isinstance(entry.event, Evaluated):
            stream.log_evaluation(entry.event, time_s=entry.time_s)
    stream.close()


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run", num_steps=4)


def test_every_step_and_every_evaluation_is_a_flat_line(run):
    feed(MetricsStream(run.path, [], config={}, warn=pytest.fail), run)
    rows = lines(run.path)
    assert [row["step"] for row in rows] == [0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert rows[0]["evaluation/chain"] == 0.2
    assert (rows[1]["filtered/zero_variance"], rows[1]["trainer/loss"], rows[1]["age_largest"]) == (1, -0.05, 0)


def test_a_tracker_gets_finite_numbers_only(run):
    stream = MetricsStream(run.path, [Recording()], config={"a": 1}, warn=pytest.fail)
    feed(stream, run)
    assert _Log.rows[0] == ("config", {"a": 1})
    assert _Log.rows[-1] == "closed"
    steps = _Log.rows[1:-1]
    assert [step for step, _ in steps] == [0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert all(isinstance(value, float) and math.isfinite(value) for _, row in steps for value in row.values())
    assert "step" not in steps[1][1]


@pytest.mark.parametrize("fails_at", ["build", "log", "close"])
def test_a_tracker_that_fails_is_switched_off_with_one_warning(run, fails_at):
    warnings = []
    feed(MetricsStream(run.path, [Recording(fails_at=fails_at)], config={}, warn=warnings.append), run)
    (warning,) = warnings
    assert "failed and is switched off; metrics.jsonl goes on (ConnectionError: no route to host)." in warning
    assert len(lines(run.path)) == 9


def test_a_missing_package_is_told_before_the_run_starts(run):
    with pytest.raises(UsageError, match="it needs a package"):
        MetricsStream(run.path, [Recording(fails_at="package")], config={}, warn=pytest.fail)


def test_a_resumed_run_cuts_what_comes_again_and_a_torn_line(run):
    feed(MetricsStream(run.path, [], config={}, warn=pytest.fail), run)
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1, "torn')
    MetricsStream(run.path, [], config={}, warn=pytest.fail, last_step=2, last_evaluated=2)
    assert [row["step"] for row in lines(run.path)] == [0, 1, 1, 2, 2]


def test_an_evaluation_that_had_not_ended_at_the_checkpoint_is_cut_for_it_comes_again(run):
    feed(MetricsStream(run.path, [], config={}, warn=pytest.fail), run)
    MetricsStream(run.path, [], config={}, warn=pytest.fail, last_step=2, last_evaluated=1)
    assert [row.get("evaluation_version/chain") for row in lines(run.path)] == [0, None, 1, None]


def test_a_full_disk_is_one_sentence(run, monkeypatch):
    stream = MetricsStream(run.path, [], config={}, warn=pytest.fail)

    def full(self, *arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(ScalerlError, match=r"the metrics cannot be written \(No space left on device\); free disk space, then resume"):
        stream.log_evaluation(Evaluated(task="t", version=0, num_passed=1, num_graded=2), time_s=0.0)


def test_an_evaluation_without_grades_is_no_number(run):
    MetricsStream(run.path, [], config={}, warn=pytest.fail).log_evaluation(
        Evaluated(task="t", version=0, num_passed=0, num_graded=0), time_s=0.0
    )
    assert not (run.path / "metrics.jsonl").exists()
