"""The examples run as they are, and the data that they make is the data that lies beside them."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
MAKES = {"make_100k_run.py": "paper_100k_run.csv", "make_verl_log.py": "verl_run.jsonl"}


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda script: script.name)
def test_an_example_runs_and_makes_what_it_says(script, tmp_path):
    printed = subprocess.run([sys.executable, "-W", "error", script], capture_output=True, check=True, cwd=tmp_path).stdout
    assert printed
    if script.name in MAKES:
        assert printed == (EXAMPLES / "data" / MAKES[script.name]).read_bytes()


def test_the_joined_run_counts_every_evaluation_once():
    rows = [line.split(",") for line in (EXAMPLES / "data" / "paper_100k_run.csv").read_text().splitlines()[1:]]
    early = [float(row[0]) for row in rows if row[2] == "Fig10a"]
    late = [float(row[0]) for row in rows if row[2] == "Fig1a"]
    assert len(late) == 31
    assert len(early) == 15
    assert all(abs(own / other - 1.0) > 0.02 for own in early for other in late)
