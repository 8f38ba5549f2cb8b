"""The rows that terminal and page lay out."""

from dataclasses import replace

from scalerl.curves.result import Estimate
from scalerl.reports import tables


def test_a_parameter_is_written_in_its_own_unit_whatever_its_name(planted):
    best = replace(planted.sigmoid_law(), law="mine", parameters={"C_knee": Estimate(5e4, 4e4, 6e4, unit="compute")})
    (row,) = tables.parameters(replace(planted.fit(), best=best)).rows
    assert row == ("C_knee", "50k GPU-hours", "40k to 60k GPU-hours", "fitted")


def test_a_doubt_stands_beside_the_status(planted):
    rows = tables.comparison([planted.fit(), planted.doubted_fit()]).rows
    assert [row[1] for row in rows] == ["ceiling bounded", "ceiling bounded, doubtful"]


def test_numbers_stand_in_a_column_of_their_own():
    rows = (("a", "1,230", "", "12 to 13"), ("b", "<0.1%", "", "14"), ("c", "1.9e-6", "", ""), ("d", "", "", "703G"))
    table = tables.Table("t", ("name", "number", "nothing", "words"), rows)
    assert [table.is_numeric(column) for column in range(4)] == [False, True, False, False]


def test_a_law_with_as_many_unknowns_as_points_has_no_aicc(planted):
    fit = planted.fit()
    (row, *_) = tables.laws(replace(fit, best=replace(fit.best, aicc=float("inf")))).rows
    assert row[-1] == "too few points"
