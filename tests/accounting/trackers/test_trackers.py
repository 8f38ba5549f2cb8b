"""Each tracker's own reader finds what was logged; without network, and with a folder of the test's own."""

import json
import sqlite3
import struct
import sys

import pytest

from scalerl.accounting.trackers import Tracker
from scalerl.core.errors import UsageError

CONFIG = {"name": "scalerl", "batch": {"prompts": 32, "group": 8}}
ROWS = [
    ({"reward_mean": 0.25, "trainer/loss": -0.5, "time_s": 10.0}, 1),
    ({"evaluation/chain": 0.5, "time_s": 12.0}, 1),
    ({"reward_mean": 0.75, "time_s": 20.0}, 2),
]


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "runs" / "mine"
    folder.mkdir(parents=True)
    return folder


def log_to(selection, run_folder):
    log = Tracker.family.select(selection).build(run_folder, config=CONFIG)
    for row, step in ROWS:
        log.log(row, step=step)
    log.close()


def test_tensorboard(run_folder):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log_to("tensorboard", run_folder)
    read = EventAccumulator(str(run_folder / "tensorboard")).Reload()
    assert [(event.step, event.value, event.wall_time) for event in read.Scalars("reward_mean")] == [(1, 0.25, 10.0), (2, 0.75, 20.0)]
    assert [(event.step, event.value) for event in read.Scalars("evaluation/chain")] == [(1, 0.5)]
    (text,) = read.Tensors("recipe")
    assert '"prompts": 32' in text.tensor_proto.string_val[0].decode()


def leveldb_records(content):
    """The records of an offline file of wandb: a header of 7 bytes, then those of a LevelDB log of a single block."""
    assert content[:4] == b":W&B"
    assert len(content) < 32_768
    at = 7
    while at + 7 <= len(content):
        length, kind = struct.unpack("<HB", content[at + 4 : at + 7])
        assert kind == 1
        yield content[at + 7 : at + 7 + length]
        at += 7 + length


def test_wandb_offline(run_folder, monkeypatch, capfd):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_DIR", str(run_folder))
    monkeypatch.delenv("WANDB_SERVICE", raising=False)  # for a service that another process has started, nothing here waits
    log_to({"type": "wandb", "mode": "offline"}, run_folder)
    # `finish`, which closes the log, returns before its service has written the file: one time in five only the header is there.
    wandb.teardown()  # this waits until the service has ended
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = run_folder.glob("wandb/offline-run-*/run-*.wandb")
    history, run = [], None
    for data in leveldb_records(path.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        run = record.run if record.HasField("run") else run
        if record.HasField("history"):
            history.append({(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in record.history.item})
    assert (run.display_name, run.project) == ("mine", "scalerl")
    assert [(row["step"], row.get("reward_mean"), row.get("evaluation/chain")) for row in history] == [
        (1, 0.25, None),
        (1, None, 0.5),
        (2, 0.75, None),
    ]
    assert capfd.readouterr().out == ""


def test_mlflow(run_folder, tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    # Its SQLite store, the default, takes ten seconds to make its tables; what we call is the same.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "mlruns").as_uri()
    log_to({"type": "mlflow", "tracking_uri": uri}, run_folder)
    client = MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("scalerl").experiment_id])
    assert (run.info.run_name, run.info.status, run.data.params["batch.prompts"]) == ("mine", "FINISHED", "32")
    history = client.get_metric_history(run.info.run_id, "reward_mean")
    assert sorted((metric.step, metric.value, metric.timestamp) for metric in history) == [(1, 0.25, 10_000), (2, 0.75, 20_000)]


def test_trackio(run_folder, tmp_path, monkeypatch, capsys):
    trackio = pytest.importorskip("trackio")
    for module in [module for name, module in sys.modules.items() if name.startswith("trackio") and hasattr(module, "TRACKIO_DIR")]:
        monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio")
    log_to("trackio", run_folder)
    assert trackio.__version__
    with sqlite3.connect(tmp_path / "trackio" / "scalerl.db") as database:
        rows = database.execute("select run_name, step, metrics from metrics order by id").fetchall()
    database.close()
    assert [(name, step, json.loads(metrics).get("reward_mean")) for name, step, metrics in rows] == [
        ("mine", 1, 0.25),
        ("mine", 1, None),
        ("mine", 2, 0.75),
    ]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow", "trackio"])
def test_a_missing_package_is_one_sentence_that_says_how_to_get_it(name, run_folder, monkeypatch):
    monkeypatch.delitem(sys.modules, f"scalerl.accounting.trackers._{name}", raising=False)
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=rf"trackers: {name}: it needs the package {name}.*pip install 'scalerl\[trackers\]'"):
        Tracker.family.select(name).build(run_folder, config={})
