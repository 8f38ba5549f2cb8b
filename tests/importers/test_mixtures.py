"""Rewards of several kinds at one step are told apart by whatever column does it, or refused."""

import pytest

from scalerl.core.errors import DataError
from scalerl.importers import Choice, list_columns, read_curves
from tests.importers.logs import jsonl, said, text

KINDS = {"text": ("aime", "math"), "truth value": (True, False), "number": (1, 8)}


def log_of(path, kinds, *, steps=range(1, 11), **columns):
    """Two rewards at each of ten steps, which the column `kind` tells apart."""
    return jsonl(
        path,
        [
            {"step": step, "gpu_hours": 20.0 * step, "kind": kind, "eval/accuracy": step / scale, **columns}
            for step in steps
            for kind, scale in zip(kinds, (10, 20), strict=True)
        ],
    )


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
def test_unlike_rewards_at_one_step_are_refused_with_the_column_that_tells_them_apart(tmp_path, kinds):
    path = log_of(tmp_path / "log.jsonl", kinds, host="a", num_graded=64)
    one = sorted(map(str, kinds))[0]
    refusal = (
        f"'eval/accuracy' has up to 2 values at a step, which the column 'kind' tells apart; --by kind makes .* --where kind={one} picks"
    )
    with pytest.raises(DataError, match=refusal):
        read_curves(path)
    assert said(list_columns(path).notes, "which the column 'kind' tells apart")
    curves = read_curves(path, choice=Choice.of(by="kind"))
    assert [curve.reward.tolist() for curve in curves] == [[step / scale for step in range(1, 11)] for scale in (10, 20)]
    (curve,) = read_curves(path, choice=Choice.of(where=[f"kind={kinds[1]}"]))
    assert curve.reward.tolist() == curves[1].reward.tolist()


def test_so_are_those_at_one_amount_of_compute_where_no_step_is_logged(tmp_path):
    lines = "".join(f"{20 * step},aime,{step / 20}\n{20 * step},math,{step / 10}\n" for step in range(1, 11))
    with pytest.raises(DataError, match="which the column 'eval_set' tells apart; --by eval_set makes a curve of each"):
        read_curves(text(tmp_path / "log.csv", "gpu_hours,eval_set,pass_rate\n" + lines))


def test_a_second_data_set_that_is_seldom_evaluated_is_told_apart_too(tmp_path):
    rows = [{"step": step, "gpu_hours": step, "kind": "math", "eval/acc": step / 40} for step in range(1, 31)]
    rows += [{"step": step, "gpu_hours": step, "kind": "aime", "eval/acc": step / 80} for step in range(3, 31, 3)]
    rows.sort(key=lambda row: row["step"])
    with pytest.raises(DataError, match="which the column 'kind' tells apart"):
        read_curves(jsonl(tmp_path / "log.jsonl", rows))


def test_rewards_that_nothing_tells_apart_are_left_out_aloud(tmp_path):
    path = log_of(tmp_path / "log.jsonl", ("same", "same"), num_graded=64)
    (curve,) = read_curves(path)
    assert said(curve.notes, "10 values of 'eval/accuracy' left out: logged again at the same step, where the last counts")


def test_one_reward_on_several_rows_of_a_step_is_no_mixture(tmp_path):
    rows = [
        {"step": step, "gpu_hours": step, "phase": phase, "eval/acc": step / 20} for step in range(1, 11) for phase in ("rollout", "update")
    ]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert curve.reward.tolist() == [step / 20 for step in range(1, 11)]


def test_a_resume_on_another_host_is_no_mixture(tmp_path):
    rows = [{"step": step, "gpu_hours": step, "host": "a", "eval/acc": step / 40} for step in range(1, 21)]
    rows += [{"step": step, "gpu_hours": step, "host": "b", "eval/acc": step / 40 + 0.01} for step in range(11, 31)]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert (len(curve), curve.wasted_compute) == (30, 10.0)


def test_a_column_of_many_texts_tells_nothing_apart(tmp_path):
    rows = [
        {"step": step, "gpu_hours": step, "id": f"{step}-{part}", "eval/acc": step / (40 + part)}
        for step in range(1, 31)
        for part in (0, 9)
    ]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert len(curve) == 30
