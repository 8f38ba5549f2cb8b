"""docs/losses/: every loss has its page, and what stands in tables and figures comes from the code."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from scalerl.objective.losses.dapo import Dapo
from scalerl.objective.losses.truncated import Truncated

FIGURES = Path(__file__).parents[2] / "docs" / "figures" / "losses.py"
specification = importlib.util.spec_from_file_location("figures_of_losses", FIGURES)
script = importlib.util.module_from_spec(specification)
specification.loader.exec_module(script)


@pytest.mark.parametrize("name", script.names())
def test_every_loss_has_a_page_with_its_numbers(name):
    page = (script.PAGES / f"{name}.md").read_text()
    assert script.tables(name) in page, "make figures"
    assert f"]({name}.svg)" in page
    assert re.search(r"arXiv \d{4}\.\d{5}|, \"[A-Z].*\"|[A-Z]\w+ \d{4}", page), "its source"
    assert "**Gradient.**" in page
    assert "**Elsewhere.**" in page
    assert all(f"| {library} |" in page for library in ("TRL", "verl", "SkyRL", "OpenRLHF", "AReaL"))
    assert f"[{name}]({name}.md)" in (script.PAGES / "index.md").read_text()


@pytest.mark.parametrize("name", script.names())
def test_every_figure_was_drawn_with_the_settings_of_today(name):
    figure = script.PAGES / f"{name}.svg"
    assert script.caption(name) in figure.read_text(), "make figures"
    assert figure.stat().st_size < 20_000


def test_no_page_is_left_of_a_loss_that_is_gone():
    assert {page.stem for page in script.PAGES.glob("*.md")} == {*script.names(), "index"}
    assert {figure.stem for figure in script.PAGES.glob("*.svg")} == set(script.names())


def test_weights_are_those_of_the_equations():
    """A bad token above the bound keeps its ratio, a good one below it too; the others stand still."""
    ratios = np.array([0.5, 1.0, 2.0])
    np.testing.assert_allclose(script.weights(Dapo(), ratios, advantage=1.0), [0.5, 1.0, 0.0])
    np.testing.assert_allclose(script.weights(Dapo(), ratios, advantage=-1.0), [0.0, 1.0, 2.0])
    np.testing.assert_allclose(script.weights(Truncated(cap=1.5), ratios, advantage=-2.0), [0.5, 1.0, 1.5])
