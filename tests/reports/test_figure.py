"""The static figure: the same bytes each time, without fonts, and a sentence where it cannot be drawn."""

import re
import sys

import pytest

from scalerl.core.errors import ScalerlError, UsageError
from scalerl.curves.result import Status
from scalerl.reports.figure import write_figure


def test_the_svg_is_deterministic_and_needs_no_font(planted, tmp_path):
    for name in ("a.svg", "b.svg"):
        write_figure(planted.fit(), tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert "<text" not in text
    assert "dc:date" not in text


def test_a_suffix_may_be_written_in_capitals(planted, tmp_path):
    for name in ("a.svg", "b.SVG", "c.Pdf"):
        write_figure(planted.fit(), tmp_path / name)
    assert (tmp_path / "a.svg").read_text() == (tmp_path / "b.SVG").read_text()
    assert (tmp_path / "c.Pdf").read_bytes().startswith(b"%PDF")
    assert b"CreationDate" not in (tmp_path / "c.Pdf").read_bytes()


def test_png_is_drawn_too(planted, tmp_path):
    write_figure(planted.fit_without_intervals(), tmp_path / "a.png", title="$not math$")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_curve_without_a_fit_is_drawn_as_points(planted, tmp_path):
    write_figure(planted.unanswered_fit(Status.COLLAPSED), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").stat().st_size > 5_000


def test_several_fits_stand_below_each_other_with_their_names(planted, tmp_path):
    write_figure(planted.fit(), str(tmp_path / "one.svg"))
    write_figure([planted.fit("first"), planted.unbounded_fit("second")], tmp_path / "two.svg")
    height = [float(re.search(r'height="([\d.]+)pt"', (tmp_path / name).read_text())[1]) for name in ("one.svg", "two.svg")]
    assert height[1] == pytest.approx(2.0 * height[0])
    for fits, count in (([], 0), ([planted.fit()] * 21, 21)):
        with pytest.raises(UsageError, match=f"{count} fits make no figure; choose 1 to 20, or write a report"):
            write_figure(fits, tmp_path / "none.svg")


def test_another_format_is_refused(planted, tmp_path):
    with pytest.raises(UsageError, match=r"no figure is drawn as '.bmp'; choose one of .svg, .png, .pdf"):
        write_figure(planted.fit(), tmp_path / "a.bmp")


def test_a_missing_folder_is_one_sentence(planted, tmp_path):
    with pytest.raises(ScalerlError, match=r"the figure cannot be written \(No such file or directory\)"):
        write_figure(planted.fit(), tmp_path / "none" / "a.svg")


def test_without_matplotlib_the_remedy_is_named(planted, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "scalerl.reports._figure", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        ScalerlError, match=r"a figure needs matplotlib, which is not installed; install it with: pip install 'scalerl\[plot\]'"
    ):
        write_figure(planted.fit(), tmp_path / "a.svg")
