"""Stores of several runs, written by the real libraries where that matters: MLflow's two, and Trackio's."""

import math
import sqlite3
import warnings
from contextlib import closing

import pytest

from scalerl.core.errors import DataError
from scalerl.core.units import SECONDS, TOKENS
from scalerl.importers import Choice, list_columns, read_curves
from tests.importers.logs import said


@pytest.fixture(scope="module", params=["sqlite", "files"])
def mlflow_store(request, tmp_path_factory):
    """A store of four runs of verl's names: one resumed from step 1 after step 3, one deleted, one without an evaluation."""
    pytest.importorskip("mlflow")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        warnings.simplefilter("ignore")
        from mlflow import MlflowClient

        path = tmp_path_factory.mktemp("store") / ("mlflow.db" if request.param == "sqlite" else "mlruns")
        client = MlflowClient(tracking_uri=f"sqlite:///{path}" if request.param == "sqlite" else path.as_uri())
        experiment = client.create_experiment("rl")
        resumed = client.create_run(experiment, run_name="first: a 'try'").info.run_id
        second = client.create_run(experiment, run_name="second").info.run_id
        deleted = client.create_run(experiment, run_name="second").info.run_id
        for at_s, step, accuracy in [(10, 1, 0.1), (20, 2, 0.8), (30, 3, 0.9), (50, 2, 0.2), (60, 3, 0.3), (70, 4, 0.4)]:
            client.log_metric(resumed, "val-core/math/acc/mean_at_8", accuracy, timestamp=1000 * at_s, step=step)
            client.log_metric(resumed, "perf/total_num_tokens", 100.0, timestamp=1000 * at_s + 5, step=step)
        for step, accuracy in [(1, 0.5), (2, math.nan), (3, math.inf), (4, 0.6)]:
            client.log_metric(second, "val-core/math/acc/mean_at_8", accuracy, timestamp=1000 * step, step=step)
            client.log_metric(second, "perf/total_num_tokens", 100.0, timestamp=1000 * step, step=step)
        client.log_metric(deleted, "val-core/math/acc/mean_at_8", 0.7, step=1)
        client.delete_run(deleted)
        client.log_metric(client.create_run(experiment).info.run_id, "loss", 1.0, step=1)
    return path


def test_i2_each_run_of_an_mlflow_store_is_a_curve(mlflow_store):
    first, second = read_curves(mlflow_store, choice=Choice(x="tokens"))
    assert (first.name, second.name) == ("first: a 'try'", "second")
    assert (first.metric, first.axis) == ("val-core/math/acc/mean_at_8", TOKENS)
    assert first.reward.tolist() == [0.1, 0.2, 0.3, 0.4]
    assert first.compute.tolist() == [100, 200, 300, 400]
    assert first.wasted_compute == 200
    assert (second.reward.tolist(), second.compute.tolist()) == ([0.5, 0.6], [100, 400])
    assert said(second.notes, "2 values of 'val-core/math/acc/mean_at_8' left out: not a finite number")
    assert said(first.notes, "has no points and was left out")


def test_one_run_of_an_mlflow_store_can_be_picked_and_timed_by_its_stamps(mlflow_store):
    (curve,) = read_curves(mlflow_store, choice=Choice.of(where=["run=second"], x="seconds"))
    assert (curve.axis, curve.compute.tolist()) == (SECONDS, [1.0, 4.0])
    assert {"run", "step", "_timestamp"} <= {column.name for column in list_columns(mlflow_store).columns}


@pytest.mark.parametrize("mlflow_store", ["files"], indirect=True)
def test_the_folder_of_an_experiment_or_of_a_run_will_do(mlflow_store):
    (run,) = (path.parent.parent for path in mlflow_store.glob("*/*/tags/mlflow.runName") if path.read_text() == "first: a 'try'")
    assert [curve.name for curve in read_curves(run.parent)] == ["first: a 'try'", "second"]
    (curve,) = read_curves(run)
    assert curve.reward.tolist() == [0.1, 0.2, 0.3, 0.4]


def file_store(folder, metrics, *, stage="active"):
    folder.mkdir(parents=True)
    (folder / "meta.yaml").write_text(f"lifecycle_stage: {stage}\n")
    for name, lines in metrics.items():
        file = folder / "metrics" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(lines)
    return folder


def test_damaged_lines_of_a_file_store_are_counted(tmp_path):
    run = file_store(
        tmp_path / "a1",
        {
            "eval/acc": "1000 0.1 1\nsix words that are no value\n2000 0.2 2 data digest\n3000 0.3 3",
            "flops": "1000 5 1\n2000 9 2\n3000 13 3\n",
        },
    )
    (curve,) = read_curves(run)
    assert (curve.name, curve.compute.tolist(), curve.reward.tolist()) == ("a1", [5, 9], [0.1, 0.2])
    assert said(curve.notes, "the last line of 1 file left out: it was cut short")
    assert said(curve.notes, "1 line left out: not of the form 'ms value step', the first in", "acc")


def test_runs_of_one_name_are_told_apart_by_their_identifier(tmp_path):
    for run in ("a" * 32, "b" * 32):
        folder = file_store(tmp_path / "7" / run, {"acc": "1 0.5 1\n", "tokens": "1 9 1\n"})
        (folder / "tags").mkdir()
        (folder / "tags/mlflow.runName").write_text("same")
    assert [curve.name for curve in read_curves(tmp_path)] == ["same (aaaaaaaa)", "same (bbbbbbbb)"]


def test_a_store_of_deleted_runs_only(tmp_path):
    with pytest.raises(DataError, match="every run in it is deleted; restore one with: mlflow runs restore"):
        read_curves(file_store(tmp_path / "a1", {"acc": "1 0.5 1\n"}, stage="deleted"))


@pytest.fixture
def trackio_project(tmp_path, monkeypatch):
    """A project of two runs."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trackio = pytest.importorskip("trackio")
        monkeypatch.setattr(trackio.utils, "TRACKIO_DIR", tmp_path)
        monkeypatch.setattr(trackio.sqlite_storage, "TRACKIO_DIR", tmp_path)
        for name, rewards in {"first": [0.1, 0.2, math.nan, 0.4], "second": [0.5, 0.6]}.items():
            run = trackio.init(project="grpo", name=name, embed=False, auto_log_gpu=False, auto_log_cpu=False)
            for step, reward in enumerate(rewards, start=1):
                run.log({"eval/reward": reward, "num_tokens": 10.0 * step, "nested": {"x": 1.0}, "note": "text"}, step=step)
            trackio.finish()
    return tmp_path / "grpo.db"


def test_each_run_of_a_trackio_project_is_a_curve(trackio_project):
    first, second = read_curves(trackio_project)
    assert (first.name, first.metric, first.axis) == ("first", "eval/reward", TOKENS)
    assert (first.compute.tolist(), first.reward.tolist()) == ([10, 20, 40], [0.1, 0.2, 0.4])
    assert said(first.notes, "1 value of 'eval/reward' left out: not a finite number")
    assert (second.name, second.reward.tolist()) == ("second", [0.5, 0.6])
    assert "nested/x" in {column.name for column in list_columns(trackio_project).columns}


def test_an_older_trackio_project_without_run_ids(tmp_path):
    with closing(sqlite3.connect(tmp_path / "old.db")) as database:
        database.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, step INTEGER, metrics TEXT)")
        rows = [("b", 1, '{"acc": 0.5}'), ("a", 1, '{"acc": 0.1}'), ("b", 2, '{"acc": NaN}'), ("a", 2, '{"acc": 0.2}'), ("a", 3, "{")]
        database.executemany("INSERT INTO metrics (run_name, step, metrics) VALUES (?, ?, ?)", rows)
        database.commit()
    a, b = read_curves(tmp_path / "old.db")
    assert (a.name, a.reward.tolist(), b.name, b.reward.tolist()) == ("a", [0.1, 0.2], "b", [0.5])
    assert said(a.notes, "1 row left out: no JSON object, or of no run")


def trackio_database(path, num_rows=200):
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE metrics (run_name TEXT, step INTEGER, metrics TEXT)")
        rows = [("a", step, f'{{"acc": {step / num_rows}, "tokens": {step}}}') for step in range(1, num_rows + 1)]
        database.executemany("INSERT INTO metrics VALUES (?, ?, ?)", rows)
        database.commit()
    return path


def test_reading_a_database_leaves_nothing_beside_it(tmp_path):
    path = trackio_database(tmp_path / "p.db")
    before = path.read_bytes()
    read_curves(path)
    assert [file.name for file in tmp_path.iterdir()] == ["p.db"]
    assert path.read_bytes() == before


def test_what_a_program_has_in_its_journal_is_read_while_it_runs(tmp_path):
    path = trackio_database(tmp_path / "p.db")
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute("INSERT INTO metrics VALUES ('a', 201, '{\"acc\": 0.5, \"tokens\": 201}')")
        writer.commit()
        (curve,) = read_curves(path)
    assert curve.compute[-1] == 201


@pytest.mark.parametrize("cut", [1, 100, 4096, 5000])
def test_a_database_that_was_cut_is_one_sentence(tmp_path, cut):
    path = trackio_database(tmp_path / "p.db")
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(DataError, match=r"the database (was cut short|cannot be read \(database disk image is malformed\)); copy it whole"):
        read_curves(path)


def test_a_view_called_metrics_is_not_run(tmp_path):
    with closing(sqlite3.connect(tmp_path / "trap.db")) as database:
        database.execute("CREATE VIEW metrics (run_name, step, metrics) AS SELECT 'a', 1, randomblob(1000000000)")
    with pytest.raises(DataError, match="it is no log in a known format"):
        read_curves(tmp_path / "trap.db")


def test_another_database_is_no_log(tmp_path):
    with closing(sqlite3.connect(tmp_path / "other.db")) as database:
        database.execute("CREATE TABLE metrics (name TEXT, value REAL)")
    with pytest.raises(DataError, match="it is no log in a known format"):
        read_curves(tmp_path / "other.db")
