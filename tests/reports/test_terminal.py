"""What stands on the terminal, in any width, encoding and colour setting."""

import io
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from scalerl.curves.result import Status
from scalerl.reports.tables import Table
from scalerl.reports.terminal import column_widths, console_for, plot_lines, print_fit, print_fits, print_tables

ESCAPE = "\x1b"


def printed(fits, *, width=80, encoding="utf-8", terminal=False):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    print_fits(fits, Console(file=stream, width=width, highlight=False, force_terminal=terminal, legacy_windows=False))
    stream.flush()
    return raw.getvalue().decode(encoding)


def test_the_plot_at_80_by_24(planted):
    lines = [line.plain for line in plot_lines(planted.fit(), width=80, num_rows=16, is_ascii=False)]
    assert len(lines) == 18
    assert max(map(cell_len, lines)) == 80
    assert lines[1].startswith("0.650┤")
    assert lines[-1].split() == ["1000", "2000", "5000", "10k", "20k", "50k", "100k", "200k"]


def test_fitted_later_and_earlier_points_have_their_own_marks(planted):
    plot = "\n".join(line.plain for line in plot_lines(planted.fit(), width=200, num_rows=60, is_ascii=False))
    assert plot.count("○") == 1, "the point at zero compute has no place on a logarithmic axis"
    assert plot.count("●") == 13
    assert plot.count("◆") == 12


def test_the_ascii_plot_has_the_same_points(planted):
    plot = "\n".join(line.plain for line in plot_lines(planted.fit(), width=200, num_rows=60, is_ascii=True))
    assert plot.isascii()
    assert [plot.count(mark) for mark in "ox,"] == [13, 12, 1]
    assert "*" in plot
    assert "." in plot.replace("0.", "")


def test_the_answer_is_printed_in_words_and_numbers(planted):
    text = printed([planted.fit()], width=100)
    for part in (
        "The mean@16 climbs towards a ceiling of 0.645 (90% interval 0.632 to 0.661).",
        "compute (GPU-hours), logarithmic",
        "ceiling 0.645",
        "half-gain compute C_mid  10.9k GPU-hours  9500 to 12.6k GPU-hours  fitted",
        "200k GPU-hours     0.643  0.633 to 0.653            not measured",
        "power law  not identified  0.620 to 1.000          1.000",
        "- The last residuals trend down: the forecast may be too high.",
        "- column gpu_hours was chosen",
        "- 1 at zero compute not shown on the logarithmic axis",
    ):
        assert part in text


def test_doubts_are_marked_and_come_before_what_was_assumed(planted):
    text = printed([planted.doubted_fit()], width=100)
    assert text.index("! The power law explains the points far better") < text.index("- The last residuals trend down")
    assert "\x1b[1;33mThe mean@16 climbs" in printed([planted.doubted_fit()], width=100, terminal=True)
    assert "\x1b[1;32mThe mean@16 climbs" in printed([planted.fit()], width=100, terminal=True)


def test_what_is_not_identified_has_no_number_and_no_ceiling_line(planted):
    text = printed([planted.unbounded_fit()], width=100)
    assert "ceiling A                not identified  0.580 to 1.000" in text
    assert "⠒ ⠒ ceiling" not in text


def test_a_fit_without_intervals_shows_no_band(planted):
    assert "90% band" in printed([planted.fit()])
    assert "90% band" not in printed([planted.fit_without_intervals()])


@pytest.mark.parametrize("status", [Status.FLAT, Status.COLLAPSED, Status.TOO_FEW_POINTS])
def test_a_curve_without_a_fit_is_still_shown(planted, status):
    text = printed([planted.unanswered_fit(status)])
    assert "●" in text
    assert "Parameters" not in text


LEDGER = Table(
    "Where it went",
    ("activity", "device-s", "off-device s"),
    (("checkpoint: last", "12.5", ""), ("grade", "", "<0.1"), ("push: publishing", "1,230", "")),
)


def test_a_table_is_narrowed_between_words_only():
    assert column_widths(LEDGER, 80) == [16, 8, 12]
    assert column_widths(LEDGER, 33) == [11, 8, 10]
    assert column_widths(LEDGER, 32) is None, "'checkpoint:', 'device-s', 'off-device' and two gaps are 33 characters"
    assert column_widths(Table("t", ("a",), (("x" * 30,),)), 24) == [24], "a longer word may be broken"


@pytest.mark.parametrize("width", [33, 40, 80])
def test_no_word_of_a_table_is_broken_and_numbers_stand_to_the_right(width):
    stream = io.StringIO()
    print_tables([LEDGER], Console(file=stream, width=width, highlight=False))
    lines = stream.getvalue().splitlines()
    assert set(" ".join(lines).split()) >= {word for row in (LEDGER.header, *LEDGER.rows) for cell in row for word in cell.split()}
    ends = [line.index(number) + len(number) for line in lines for number in ("12.5", "1,230") if number in line]
    assert len(set(ends)) == 1


def test_on_a_narrower_terminal_each_row_is_a_block():
    stream = io.StringIO()
    print_tables([LEDGER], Console(file=stream, width=24, highlight=False))
    assert [line.rstrip() for line in stream.getvalue().splitlines()][2:] == [
        "checkpoint: last",
        "  device-s  12.5",
        "grade",
        "  off-device s  <0.1",
        "push: publishing",
        "  device-s  1,230",
    ]


def test_a_table_in_ascii_has_a_line_below_its_head_and_no_bars():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    print_tables([LEDGER], Console(file=stream, width=80, highlight=False))
    stream.flush()
    text = stream.buffer.getvalue().decode("ascii")
    assert "-" * 40 in text
    assert "|" not in text


def test_several_curves_come_with_a_table_of_all(planted):
    text = printed([planted.fit("first"), planted.unbounded_fit("second")], width=120)
    assert text.index("All curves") < text.index("first") < text.index("second")


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(width=st.integers(24, 140), encoding=st.sampled_from(["utf-8", "ascii", "latin-1"]))
def test_no_line_is_wider_than_the_terminal(planted, width, encoding):
    text = printed([planted.fit("a"), planted.unbounded_fit("b")], width=width, encoding=encoding)
    assert max(map(cell_len, text.splitlines())) <= width


def test_no_escape_codes_where_no_terminal_is(planted):
    assert ESCAPE not in printed([planted.fit()])
    assert ESCAPE in printed([planted.fit()], terminal=True)


def test_no_color_means_no_escape_codes_even_on_a_terminal(planted, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = Terminal()
    print_fit(planted.fit(), console_for(coloured))
    assert ESCAPE in coloured.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    print_fit(planted.fit(), console_for(plain))
    assert ESCAPE not in plain.getvalue()


def test_hostile_names_neither_colour_nor_break_the_terminal(planted):
    name = "x\x1b]0;title\x07\x1b[2J[red]ü\nsecond line"
    hostile = planted.fit(name)
    hostile = replace(hostile, curve=replace(hostile.curve, metric="\x1b[31mm", notes=("note\x1b[0m",)), warnings=("warn\x07ing",))
    text = printed([hostile, hostile], encoding="ascii", width=120)
    assert text.isascii()
    assert "x?]0;title??[2J[red]??second line" in text
    assert not {character for character in text if not character.isprintable()} - {"\n"}
