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
