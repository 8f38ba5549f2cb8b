"""`scalerl fit --plot`."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from scalerl.cli.fit import app

RUN = str(Path(__file__).parents[2] / "examples" / "data" / "verl_run.jsonl")


@pytest.mark.parametrize("name", ["forecast.png", "forecast.PNG"])
def test_fit_draws_a_figure_and_says_so(tmp_path, name):
    figure = tmp_path / name
    result = CliRunner().invoke(app, [RUN, "--gpus", "32", "--plot", str(figure)])
    assert result.exit_code == 0
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert f"wrote {figure}" in result.stderr
