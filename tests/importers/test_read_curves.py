"""The public entry: which importer reads a path, errors as one sentence, and hostile files."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scalerl.core.errors import DataError, ScalerlError
from scalerl.importers import Choice, Importer, list_columns, read_curves
from tests.importers.logs import jsonl, text


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"absent.jsonl: there is no such file or folder; check the path"):
        read_curves(tmp_path / "absent.jsonl")


@pytest.mark.parametrize("content", ["", " \n\n"])
def test_an_empty_file(tmp_path, content):
    with pytest.raises(DataError, match=r"log.jsonl: the file is empty"):
        read_curves(text(tmp_path / "log.jsonl", content))


def test_binary_garbage(tmp_path):
    path = tmp_path / "weights.bin"
    path.write_bytes(bytes(range(256)) * 10)
    with pytest.raises(DataError, match=r"it is no log in a known format; formats that are read: .*csv, jsonl"):
        read_curves(path)


def test_a_folder_without_a_log(tmp_path):
    with pytest.raises(DataError, match="the folder holds no known log"):
        read_curves(tmp_path)


def test_a_folder_with_logs_names_them(tmp_path):
    path = jsonl(tmp_path / "metrics.jsonl", [{"step": 1, "reward": 0.5}])
    with pytest.raises(DataError, match=f"it is a folder, not a log; give {path}"):
        read_curves(tmp_path)


def test_permission_denied(tmp_path, monkeypatch):
    path = text(tmp_path / "log.csv", "step,acc\n1,0.5\n")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"log.csv: it may not be read"):
        read_curves(path)


def test_a_stream_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="save the stream to a file first"):
        read_curves(tmp_path / "pipe")


def test_a_path_that_no_file_can_have():
    with pytest.raises(DataError):
        read_curves("a\0b")
    with pytest.raises(DataError):
        read_curves("a" * 5000)


def test_every_importer_is_light():
    """Asking all importers about a path imports nothing heavy."""
    code = """
import sys
from scalerl.importers import Importer
Importer.family.classes()
heavy = {"torch", "tensorboard", "wandb", "mlflow", "pandas", "pyarrow", "transformers", "trackio"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert {"csv", "jsonl"} <= set(Importer.family.names())


VALID_JSONL = b"".join(b'{"step":%d,"gpu_hours":%d,"pass_rate":0.%d,"note":"x"}\n' % (step, 2 * step, step) for step in range(1, 9))
VALID_CSV = b"seed,step,gpu_hours,pass_rate\n" + b"".join(b"0,%d,%d,0.%d\n" % (step, 2 * step, step) for step in range(1, 9))
CELLS = st.sampled_from(["", "NaN", "inf", "-1", "1e999", "1e308", "-1e308", "0.5", "x", '"', "0", "50", "1_0", "\ufeff", "\r", "1.7e9"])
KEYS = st.sampled_from(
    ["step", "gpu_hours", "pass_rate", "reward", "seed", "elapsed_s", "tokens", "data", "perf/time_per_step", "time/step", "num_tokens"]
)
ROWS = st.dictionaries(
    KEYS, st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.dictionaries(KEYS, st.floats(), max_size=2)
)
CHOICES = st.builds(
    Choice,
    x=st.none() | KEYS,
    y=st.none() | KEYS,
    by=st.sampled_from([(), ("seed",)]),
    gpus=st.none() | st.just(8.0),
    bounds=st.none() | st.just((-10.0, 10.0)),
)


@st.composite
def damaged(draw, valid):
    """A valid log, cut, with some bytes replaced or inserted."""
    data = bytearray(valid[: draw(st.integers(0, len(valid)))])
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=3))
    return bytes(data)


def ragged_csv():
    lines = st.lists(st.lists(CELLS, max_size=6).map(",".join), max_size=12)
    return st.builds(lambda header, body: "\n".join([",".join(header), *body]).encode(), st.lists(KEYS, min_size=1, max_size=6), lines)


def odd_jsonl():
    return st.lists(ROWS, max_size=10).map(lambda rows: "\n".join(map(json.dumps, rows)).encode())


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    content=st.binary(max_size=200) | damaged(VALID_JSONL) | damaged(VALID_CSV) | ragged_csv() | odd_jsonl(),
    name=st.sampled_from(["log", "log.csv", "log.jsonl", "log.tsv"]),
    choice=CHOICES,
)
@example(
    content=b'{"step": 1, "pass_rate": 0.5, "gpu_hours": 1e308}\n{"step": 3, "pass_rate": 0.5, "gpu_hours": -1e308}',
    name="log.jsonl",
    choice=Choice(),
)
@example(content=b'{"step": ' + b"9" * 5000 + b', "pass_rate": 0.5}', name="log.jsonl", choice=Choice())
@example(content=VALID_JSONL, name="log", choice=Choice())
def test_any_bytes_give_curves_or_one_sentence(tmp_path, content, name, choice):
    path = tmp_path / name
    path.write_bytes(content)
    for read in (read_curves, list_columns):
        with contextlib.suppress(ScalerlError):
            assert read(path, choice=choice)
