"""The ledger of the synthetic run, by activity and by device: every number is summed by hand."""

import pytest

from scalerl.accounting.ledger import UNBOOKED, LedgerFold
from scalerl.testing.synthetic_run import write_run


@pytest.fixture(scope="module")
def fold(tmp_path_factory):
    """20 s of warm start, 20 steps of 2 s and one of them twice, evaluations of 1 s after 0, 1, 2, 3, 4, 8, 12, 16, 20: 71 s."""
    fold = LedgerFold()
    for entry in write_run(tmp_path_factory.mktemp("ledger") / "run", num_steps=20, resume_at=7).events():
        fold.update(entry)
    return fold


def test_what_follows_from_the_rows(fold):
    ledger = fold.ledger()
    assert ledger.elapsed_device_s == pytest.approx(2 * 71.0)
    assert ledger.base_device_s == pytest.approx(2 * 20.0)
    assert (ledger.num_steps, ledger.wasted_steps) == (20, 1)
    assert (ledger.wasted_device_s, ledger.wasted_flops) == pytest.approx((4.0, 1e10))
    assert (ledger.device_s_per_step, ledger.flops_per_step) == pytest.approx((4.0, 1e10))
    assert ledger.usd_per_step == pytest.approx(4.0 * 0.001)
    assert ledger.usd == pytest.approx(0.142)
    assert ledger.grading_share == pytest.approx(21 * 0.1 / 142.0)
    assert ledger.device_s_per_1000_tokens == pytest.approx(1000.0 * 102.0 / (21 * 128))
    assert ledger.unbooked_share == pytest.approx(21 * 0.02 / 142.0)
    assert ledger.to_dict()["unbooked_share"] == ledger.unbooked_share


def test_work_on_no_device_has_a_column_of_its_own(fold):
    (row,) = [row for row in fold.ledger().rows if row.activity == "grade"]
    assert (row.device, row.device_s, row.off_device_s) == (None, 0.0, pytest.approx(2.1))


def test_by_device_every_second_of_each_has_a_row(fold):
    ledger = fold.ledger(by="device")
    for device, unbooked_s in (("generator:0", 0.0), ("trainer:0", 0.42)):
        rows = [row for row in ledger.rows if row.device == device]
        assert sum(row.device_s for row in rows) == pytest.approx(71.0)
        assert rows[-1].activity == UNBOOKED
        assert rows[-1].device_s == pytest.approx(unbooked_s, abs=1e-6)
    assert [row.activity for row in ledger.rows if row.device is None] == ["grade"]
    assert ledger.unbooked_share == pytest.approx(fold.ledger().unbooked_share)


def test_a_declared_device_that_was_never_heard_of_is_unbooked(fold):
    fold = LedgerFold.restored(fold.state())
    fold.spending.num_devices = 3
    silent = [row for row in fold.ledger(by="device").rows if row.device is None and row.activity == UNBOOKED]
    assert [row.device_s for row in silent] == pytest.approx([71.0])
