"""JSON lines: shapes, damage, speed and memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scalerl.core.errors import DataError
from scalerl.importers import read_curves
from tests.importers.logs import jsonl, said, text


def test_nested_objects_are_joined_by_slashes(tmp_path):
    rows = [{"step": step, "eval": {"acc": step / 10}, "timing_s": {"step": 2.0}} for step in (1, 2)]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert (curve.metric, curve.reward.tolist(), curve.compute.tolist()) == ("eval/acc", [0.1, 0.2], [2.0, 4.0])


def test_nan_literals_are_absent_and_counted(tmp_path):
    cells = ["NaN", "0.5", '"Infinity"', "null"]
    content = "".join(f'{{"gpu_hours": {hours}, "pass_rate": {cell}}}\n' for hours, cell in enumerate(cells, start=1))
    (curve,) = read_curves(text(tmp_path / "log.jsonl", content))
    assert (curve.compute.tolist(), curve.reward.tolist()) == ([2.0], [0.5])
    assert said(curve.notes, "2 values of 'pass_rate' left out: not a finite number")


def test_a_torn_last_line_is_cut_and_a_bad_line_named(tmp_path):
    content = '{"step":1,"pass_rate":0.1}\nstarting epoch 2\n\n{"step":2,"pass_rate":0.2}\r\n[3, 0.3]\n{"step":3,"pass_ra'
    (curve,) = read_curves(text(tmp_path / "log.jsonl", "\ufeff" + content))
    assert curve.reward.tolist() == [0.1, 0.2]
    assert said(curve.notes, "line 6 left out: the last line was cut short")
    assert said(curve.notes, "2 lines left out: no JSON object, the first is line 2")


def test_sparse_rows_are_joined_by_step_and_the_last_value_wins(tmp_path):
    rows = [
        {"step": 1, "gpu_hours": 8.0},
        {"step": 1, "eval/acc": 0.9},
        {"step": 1, "eval/acc": 0.2},
        {"step": 2, "eval/acc": 0.3},
        {"gpu_hours": 16.0},
    ]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert (curve.compute.tolist(), curve.reward.tolist()) == ([8.0, 16.0], [0.2, 0.3])
    assert said(curve.notes, "1 value of 'eval/acc' left out: logged again at the same step")


@pytest.mark.parametrize("content", ["{]\n", '{"a":' * 5000, "{" * 3])
def test_no_object_in_the_file(tmp_path, content):
    with pytest.raises(DataError, match="none of its 1 lines is a JSON object"):
        read_curves(text(tmp_path / "log.jsonl", content))


READ = r"""
import json, re, sys, time
from pathlib import Path
from scalerl.importers import read_curves
start = time.process_time()
(curve,) = read_curves(sys.argv[1])
peak_kib = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
print(json.dumps([len(curve), time.process_time() - start, peak_kib / 1024]))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_300_000_rows_take_seconds_and_little_memory(tmp_path, capsys):
    path = tmp_path / "long.jsonl"
    with path.open("w") as file:
        for step in range(300_000):
            evaluation = ',"eval/acc":0.5' if step % 100 == 0 else ""
            file.write(f'{{"step":{step},"reward":0.25,"step_time":3.5,"loss":0.01,"kl":0.002,"note":"abc"{evaluation}}}\n')
    output = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True).stdout
    points, cpu_s, peak_mib = json.loads(output)
    with capsys.disabled():
        print(f"\n300,000 JSON lines: {cpu_s:.2f} CPU-seconds, {peak_mib:.0f} MiB at most")
    assert points == 3000
    assert cpu_s < 20
    assert peak_mib < 300


def test_nul_bytes_behind_a_killed_run_are_a_torn_tail(tmp_path):
    content = '{"gpu_hours":1,"pass_rate":0.1}\n{"gpu_hours":2,"pass_rate":0.2}\n'
    (curve,) = read_curves(text(tmp_path / "log.jsonl", content + '{"gpu_ho' + "\0" * 4096))
    assert curve.reward.tolist() == [0.1, 0.2]
    assert said(curve.notes, "line 3 left out: the last line was cut short")
    (curve,) = read_curves(text(tmp_path / "metrics", content + "\0" * 4096))
    assert said(curve.notes, "line 3 left out: the last line was cut short")
    with pytest.raises(DataError, match="the file is empty"):
        read_curves(text(tmp_path / "all.jsonl", "\0" * 4096))
