"""One file in somebody else's package is selectable, listed and tested, and a bad one is caught, without a test of its author's."""

import os
import subprocess
import sys

import pytest

from tests.plugins import install

LAW = '''
"""Half-life: mean = A - (A - R0) 2^(-C / h)."""

import math

import numpy as np

from scalerl.curves.laws import Law, Parameter


class HalfLife(Law):
    """Each h of compute halves the distance to the ceiling."""

    def parameters(self, log_last):
        """h, from a little before the first point to ten times the last."""
        return (Parameter("h", -1.0, log_last + math.log(10.0), is_compute=True),)

    def progress(self, log_compute, *log_parameters):
        """S = 1 - 2^(-C / h)."""
        (log_h,) = log_parameters
        return -np.expm1(-math.log(2.0) * np.exp(np.minimum(log_compute - log_h, 500.0)))
'''

IMPORTER = '''
"""Lines of `compute|reward` below a first line that says MINE."""

from scalerl.importers import Importer, Sniff, TableBuilder


class Mine(Importer):
    """A format that nobody else uses."""

    example = {"log.mine": b"MINE\\n10|0.2\\n20|0.3\\n30|0.4\\n"}

    def sniff(self, path, head):
        """Its signature."""
        return Sniff.CERTAIN if head.startswith(b"MINE\\n") else Sniff.NO

    def read(self, path, labels):
        """One row a line; a line without its end may have been cut."""
        table = TableBuilder(labels)
        for line in path.read_text(errors="replace").splitlines(keepends=True)[1:]:
            compute, bar, reward = line.partition("|")
            if bar and line.endswith("\\n"):
                table.add([("flops", compute), ("pass_rate", reward)])
        return table.build()
'''


@pytest.fixture
def guest(tmp_path, monkeypatch):
    """A plug-in package with a law and an importer, and a way to run commands beside it."""
    points = {"scalerl.laws": "guest.laws", "scalerl.importers": "guest.importers"}
    files = {"laws/half_life.py": LAW, "importers/mine.py": IMPORTER}
    install(tmp_path, "guest", files=files, entry_points=points, monkeypatch=monkeypatch)

    def run(*arguments):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            [sys.executable, "-m", *arguments], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
        )

    run.folder = tmp_path
    return run


def test_a_plugins_files_are_tested_by_the_shipped_suites(guest):
    result = guest("pytest", "-v", "-p", "no:cacheprovider", "--pyargs", "scalerl.testing", "-k", "half_life or mine")
    assert result.returncode == 0, result.stdout
    for case in ("test_its_settings_survive_a_recipe_file[laws/half_life]", "test_it_forecasts_its_own_curve[half_life]"):
        assert f"{case} PASSED" in result.stdout
    for case in ("test_its_settings_survive_a_recipe_file[importers/mine]", "test_a_garbled_log_gives_sound_curves_or_a_sentence[mine]"):
        assert f"{case} PASSED" in result.stdout


@pytest.mark.parametrize(
    ("name", "text", "failure"),
    [
        ("laws/half_life.py", LAW.replace("-np.expm1(", "1.5 - 0.5 * np.exp("), "test_its_progress_rises_to_one"),
        ("laws/half_life.py", LAW.replace("np.minimum(log_compute - log_h, 500.0)", "log_compute"), "test_units_do_not_matter"),
        ("laws/half_life.py", LAW.replace('"""Half-life', '""""""\n"""Half-life'), "test_it_is_documented"),
        (
            "importers/mine.py",
            IMPORTER.replace("splitlines(keepends=True)[1:]", "splitlines(keepends=True)[9:]"),
            "test_its_example_is_read",
        ),
        ("importers/mine.py", IMPORTER.replace("return table.build()", "return 1 / 0"), "test_a_log_cut_anywhere"),
    ],
)
def test_a_bad_plugin_fails_them(guest, name, text, failure):
    (guest.folder / "guest" / name).write_text(text)
    result = guest("pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "scalerl.testing", "-k", "half_life or mine")
    assert result.returncode == 1
    assert failure in result.stdout


def test_they_are_selectable_and_a_misspelt_name_gets_a_suggestion(guest):
    (guest.folder / "run.mine").write_text("MINE\n" + "".join(f"{c}|{0.7 - 0.5 * 2.718 ** (-c / 20):.4f}\n" for c in range(5, 120, 5)))
    fitted = guest("scalerl.cli.main", "fit", "run.mine", "--law", "half_life")
    assert fitted.returncode == 0, fitted.stderr
    assert "Parameters of the half life" in fitted.stdout
    wrong = guest("scalerl.cli.main", "fit", "run.mine", "--law", "half_lief")
    assert wrong.returncode == 2
    assert "did you mean 'half_life'" in wrong.stderr
    (guest.folder / "weights.bin").write_bytes(bytes(range(256)))
    assert "formats that are read: csv, jsonl, mine, mlflow, " in guest("scalerl.cli.main", "fit", "weights.bin").stderr
