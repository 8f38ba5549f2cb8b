"""Which columns become compute and reward: the user's, a framework's, common names; and what the notes say of it."""

from pathlib import Path

import pytest

from scalerl.core.errors import DataError, UnknownNameError, UsageError
from scalerl.core.units import DEVICE_HOURS, FLOPS, SECONDS, STEPS, TOKENS, USD, Axis
from scalerl.importers import Choice, list_columns, read_curves
from tests.importers.logs import jsonl, said, text

PAPER_POINTS = Path(__file__).parents[2] / "examples" / "data" / "scalerl_paper_points.csv"


def test_i5_csv_takes_optimizer_steps_not_logger_steps(tmp_path):
    (curve,) = read_curves(text(tmp_path / "log.csv", "_step,train/global_step,train/reward\n0,0,0.10\n16,1,0.12\n32,2,0.15\n"))
    assert (curve.compute.tolist(), curve.reward.tolist(), curve.axis) == ([0, 1, 2], [0.10, 0.12, 0.15], STEPS)
    assert said(curve.notes, "'train/reward' is the TRAINING reward")


def test_held_out_evaluation_comes_before_training_reward(tmp_path):
    rows = [{"step": 1, "reward": 0.9, "val/acc": 0.3, "loss": 1.0, "elapsed_s": 5}]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert curve.metric == "val/acc"
    assert said(curve.notes, "'val/acc'", "held-out", "also there: 'reward'")


def evaluated(path, *columns):
    """A log of three evaluations, rising in each column."""
    return jsonl(path, [{"step": step, "tokens": 10 * step} | dict.fromkeys(columns, step / 10) for step in (1, 2, 3)])


@pytest.mark.parametrize(
    ("columns", "curves"),
    [
        (["eval/math/acc", "eval/code/acc"], {"code": "eval/code/acc", "math": "eval/math/acc"}),
        (["eval/math/acc", "eval/code/acc", "eval/acc"], {"code": "eval/code/acc", "math": "eval/math/acc"}),
        (["eval/math/acc", "eval/code/acc", "eval/all/acc"], {"code": "eval/code/acc", "math": "eval/math/acc"}),
        (["eval/math/pass@1", "eval/math/pass@8", "eval/gsm8k/pass@1"], {"gsm8k": "eval/gsm8k/pass@1", "math": "eval/math/pass@1"}),
        (["math/eval/acc", "code/eval/acc"], {"code": "code/eval/acc", "math": "math/eval/acc"}),
        (["eval/math/acc", "eval/acc"], {"log": "eval/acc"}),
        (["eval/acc", "eval/format_acc", "eval/answer_acc"], {"log": "eval/acc"}),
        (["val_acc", "eval/reward", "train/reward"], {"log": "eval/reward"}),
    ],
)
def test_each_held_out_data_set_is_a_curve(tmp_path, columns, curves):
    found = read_curves(evaluated(tmp_path / "log.jsonl", *columns))
    assert {curve.name: curve.metric for curve in found} == curves
    left_out = [name for name in columns if name not in curves.values()]
    assert all(said(curve.notes, f"'{name}'") for curve in found for name in left_out)


def test_data_sets_and_runs_make_a_curve_each(tmp_path):
    rows = [{"seed": seed, "step": 1, "eval/math/acc": 0.1} for seed in (0, 1)] + [{"seed": 0, "step": 2, "eval/code/acc": 40.0}]
    curves = read_curves(jsonl(tmp_path / "log.jsonl", rows), choice=Choice.of(by="seed"))
    assert [(curve.name, curve.bounds) for curve in curves] == [
        ("seed=0 / math", (0.0, 1.0)),
        ("seed=0 / code", (0.0, 100.0)),
        ("seed=1 / math", (0.0, 1.0)),
    ]
    assert said(curves[0].notes, "'seed=1 / code' has no points and was left out")


def test_a_name_without_end_is_nobodys(tmp_path):
    path = evaluated(tmp_path / "log.jsonl", "eval/a_test-" * 10_000 + "x", "reward")
    assert read_curves(path)[0].metric == "reward"


def test_what_was_not_taken_is_named_when_columns_are_asked_for_too(tmp_path):
    path = evaluated(tmp_path / "log.jsonl", "eval/acc", "reward")
    (curve,) = read_curves(path, choice=Choice(x="step", y="reward"))
    assert said(curve.notes, "compute: 'step', in steps", "also there: 'tokens'")
    assert said(curve.notes, "reward: 'reward', the TRAINING reward, as asked (also there: 'eval/acc')")


@pytest.mark.parametrize(
    ("columns", "axis", "text_of_column"),
    [
        ({"gpu_hours": 1.0, "total_flops": 2.0, "elapsed_s": 3.0, "num_tokens": 4.0}, DEVICE_HOURS, "'gpu_hours'"),
        ({"total_flops": 2.0, "elapsed_s": 3.0, "step_time": 1.0}, FLOPS, "'total_flops'"),
        ({"elapsed_s": 3.0, "step_time": 1.0, "total_tokens": 4.0}, SECONDS, "'step_time'"),
        ({"elapsed_s": 3.0, "total_tokens": 4.0}, SECONDS, "'elapsed_s'"),
        ({"total_tokens": 4.0, "cost_usd": 1.0}, TOKENS, "'total_tokens'"),
        ({"cost_usd": 1.0}, USD, "'cost_usd'"),
        ({"total_flos": 0.0}, STEPS, "'step'"),
    ],
)
def test_compute_is_taken_on_the_preferred_axis(tmp_path, columns, axis, text_of_column):
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", [{"step": 1, "eval/acc": 0.5, **columns}]))
    assert curve.axis == axis
    assert said(curve.notes, f"compute: {text_of_column}")


def test_gpus_turn_seconds_into_device_hours(tmp_path):
    path = jsonl(tmp_path / "log.jsonl", [{"step": 1, "eval/acc": 0.5, "elapsed_s": 1800, "total_flops": 1e20}])
    (curve,) = read_curves(path, choice=Choice(gpus=16))
    assert (curve.compute.tolist(), curve.axis) == ([8.0], DEVICE_HOURS)
    assert said(curve.notes, "'elapsed_s' x 16 GPUs, in GPU-hours")
    (curve,) = read_curves(path, choice=Choice(x="device_hours", gpus=2))
    assert curve.compute.tolist() == [1.0]
    (curve,) = read_curves(path, choice=Choice(x="flops", gpus=2))
    assert (curve.compute.tolist(), curve.axis) == ([1e20], FLOPS)
    assert said(curve.notes, "--gpus changes nothing")
    with pytest.raises(UsageError, match="give --gpus N"):
        read_curves(path, choice=Choice(x="device_hours"))


@pytest.mark.parametrize(
    ("column", "axis"),
    [
        ("my_flops", FLOPS),
        ("prompt_tokens", TOKENS),
        ("train_s", SECONDS),
        ("outer_step", STEPS),
        ("energy_kwh", Axis("energy_kwh", "energy_kwh")),
    ],
)
def test_the_unit_of_an_asked_column_is_told_by_its_name(tmp_path, column, axis):
    rows = [{"epoch": epoch, column: 10.0 * epoch, "score": epoch / 10, "odd": -3.0} for epoch in (1, 2, 3)]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows), choice=Choice(x=column, y="score"))
    assert (curve.axis, curve.compute.tolist(), curve.reward.tolist()) == (axis, [10.0, 20.0, 30.0], [0.1, 0.2, 0.3])


def test_a_counter_that_does_not_grow_is_the_amount_of_a_step(tmp_path):
    rows = [{"step": step, "tokens": tokens, "eval/acc": 0.5} for step, tokens in enumerate([100, 90, 110, 95], start=1)]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert curve.compute.tolist() == [100, 190, 300, 395]


def test_step_times_logged_every_tenth_step_stand_for_ten_steps(tmp_path):
    rows = [{"step": step, "step_time": 6.0, "eval/acc": 0.5} for step in (10, 20, 30)]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert curve.compute.tolist() == [60, 120, 180]


@pytest.mark.parametrize("choice", [{"x": "gpu_hour"}, {"y": "pas_rate"}, {"by": "serie"}, {"where": ["serie=a"]}])
def test_a_misspelt_column_gets_a_suggestion(tmp_path, choice):
    path = text(tmp_path / "log.csv", "series,gpu_hours,pass_rate\na,1,0.5\n")
    with pytest.raises(UnknownNameError, match=r"did you mean '(gpu_hours|pass_rate|series)'") as raised:
        read_curves(path, choice=Choice.of(**choice))
    assert raised.value.exit_code == 2


def test_a_misspelt_value_gets_a_suggestion(tmp_path):
    path = text(tmp_path / "log.csv", "series,gpu_hours,pass_rate\nbaseline,1,0.5\n")
    with pytest.raises(UnknownNameError, match="did you mean 'baseline'"):
        read_curves(path, choice=Choice.of(where=["series=basline"]))


@pytest.mark.parametrize("flag", ["x", "y"])
def test_a_column_of_text_is_no_number(tmp_path, flag):
    path = text(tmp_path / "log.csv", "series,gpu_hours,pass_rate\nbaseline,1,0.5\n")
    with pytest.raises(DataError, match=f"--{flag}: the column 'series' holds text such as 'baseline'; choose a column of numbers"):
        read_curves(path, choice=Choice.of(**{flag: "series"}))


@pytest.mark.parametrize(
    ("asked", "logged"), [("rewards/acc/mean", "rewards/acc"), ("rewards/acc", "rewards/acc/mean"), ("eval/reward", "eval_reward")]
)
def test_i5_a_column_answers_to_its_older_name(tmp_path, asked, logged):
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", [{"step": 1, logged: 0.5}]), choice=Choice(y=asked))
    assert curve.metric == logged
    assert said(curve.notes, f"--y: '{asked}' is called '{logged}' in this log")


@pytest.mark.parametrize(
    "flags",
    [
        {"gpus": 0.0},
        {"gpus": float("nan")},
        {"bounds": "1"},
        {"bounds": "1:0"},
        {"bounds": "a:b"},
        {"bounds": "0:nan"},
        {"where": ["seed"]},
        {"where": ["=1"]},
    ],
)
def test_flags_without_sense_are_usage_errors(flags):
    with pytest.raises(UsageError, match=r"--(gpus|bounds|where): "):
        Choice.of(**flags)


def test_by_makes_a_curve_of_each_value_and_where_picks_rows(tmp_path):
    path = text(tmp_path / "log.csv", "seed,lr,step,pass_rate\n0,1e-6,1,0.1\n1,1e-6,1,0.2\n0,1e-6,2,0.3\n1,1e-5,1,0.4\n,1e-6,1,0.5\n")
    curves = read_curves(path, choice=Choice.of(by="seed"))
    assert [(curve.name, curve.reward.tolist()) for curve in curves] == [("seed=0", [0.1, 0.3]), ("seed=1", [0.4])]
    assert said(curves[0].notes, "1 row left out: without a value in seed")
    curves = read_curves(path, choice=Choice.of(by="seed, lr"))
    assert [(curve.name, curve.reward.tolist()) for curve in curves] == [
        ("seed=0 / lr=1e-6", [0.1, 0.3]),
        ("seed=1 / lr=1e-6", [0.2]),
        ("seed=1 / lr=1e-5", [0.4]),
    ]
    (curve,) = read_curves(path, choice=Choice.of(where=["seed=1.0", "lr=0.00001"]))
    assert curve.reward.tolist() == [0.4]


def test_mixed_runs_are_refused_until_told_apart(tmp_path):
    path = text(tmp_path / "log.csv", "seed,step,pass_rate\n0,1,0.1\n0,2,0.2\n1,1,0.3\n1,2,0.4\n")
    with pytest.raises(
        DataError,
        match="the log is of 2 runs, which the column 'seed' tells apart; --by seed makes a curve of each, --where seed=0 picks one",
    ):
        read_curves(path)


def test_runs_mixed_without_a_name_are_noticed(tmp_path):
    (curve,) = read_curves(text(tmp_path / "log.csv", "gpu_hours,pass_rate\n1,0.1\n2,0.2\n1,0.3\n2,0.4\n"))
    assert curve.compute.tolist() == [1, 1, 2, 2]
    assert said(curve.notes, "compute goes back 1 time:")


@pytest.mark.parametrize(
    ("rewards", "bounds", "note"),
    [
        ([0.0, 0.5, 1.0], (0.0, 1.0), None),
        ([20.0, 21.5327, 69.4472], (0.0, 100.0), "read as a percentage"),
        ([-0.9, 0.1, 1.0], (-1.0, 1.0), "read as a reward within -1 .. 1"),
    ],
)
def test_f3_percent_fraction_and_signed_rewards_get_their_bounds(tmp_path, rewards, bounds, note):
    rows = [{"gpu_hours": hours, "pass_rate": reward} for hours, reward in enumerate(rewards)]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert (curve.bounds, curve.reward.tolist()) == (bounds, rewards)
    assert curve.compute[0] == 0.0
    assert note is None or said(curve.notes, note)


@pytest.mark.parametrize("rewards", [[0.2, 1.3], [0.2, 9.0], [-0.5, 30.0], [20.0, 130.0], [-2.0, 0.5]])
def test_f3_other_rewards_need_bounds(tmp_path, rewards):
    path = jsonl(tmp_path / "log.jsonl", [{"gpu_hours": 1.0, "pass_rate": reward} for reward in rewards])
    with pytest.raises(DataError, match="perhaps a sum of rewards; give the least and the largest as --bounds LOW:HIGH"):
        read_curves(path)
    (curve,) = read_curves(path, choice=Choice.of(bounds="-5:200"))
    assert curve.bounds == (-5.0, 200.0)


@pytest.mark.parametrize(("scale", "highest"), [(1, 1), (100, 100)])
def test_f3_a_few_evaluations_that_failed_are_left_out_aloud(tmp_path, scale, highest):
    rewards = [scale * place / 10 for place in range(10)]
    rewards[3] = -1
    path = jsonl(tmp_path / "log.jsonl", [{"gpu_hours": hours, "pass_rate": reward} for hours, reward in enumerate(rewards)])
    (curve,) = read_curves(path)
    assert (curve.bounds, curve.reward.tolist()) == ((0.0, highest), rewards[:3] + rewards[4:])
    assert said(
        curve.notes, "1 value of 'pass_rate' left out: exactly -1, as failed evaluations are logged, among", "--bounds -1:", "keeps them"
    )
    (curve,) = read_curves(path, choice=Choice.of(bounds=f"-1:{highest}"))
    assert curve.reward.tolist() == rewards


@pytest.mark.parametrize("rewards", [[-1, -0.9, 0.1, 0.3, 0.5, 0.7], [-1, 1, -1, 1, 0.5], [-0.5, 0.1, 0.2, 0.3, 0.4]])
def test_f3_rewards_that_may_be_negative_are_kept_and_counted(tmp_path, rewards):
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", [{"step": step, "pass_rate": reward} for step, reward in enumerate(rewards)]))
    assert (curve.bounds, curve.reward.tolist()) == ((-1.0, 1.0), rewards)
    num_negative = sum(reward < 0 for reward in rewards)
    assert said(
        curve.notes, f"is negative at {num_negative} point", f"of {len(rewards)}, down to {min(rewards):g}, and is read as a reward within"
    )


def test_f3_fractions_within_the_bounds_of_percentages_are_noticed(tmp_path):
    path = jsonl(tmp_path / "log.jsonl", [{"step": step, "pass_rate": step / 10} for step in range(6)])
    (curve,) = read_curves(path, choice=Choice.of(bounds="0:100"))
    assert said(curve.notes, "'pass_rate' is read within 0 .. 100, as asked, though it stays within 0 .. 1, as fractions do")


def test_f3_bounds_are_those_of_all_curves_of_a_log(tmp_path):
    path = text(tmp_path / "log.csv", "run,gpu_hours,pass_rate\na,1,0.5\nb,1,50\n")
    assert [curve.bounds for curve in read_curves(path, choice=Choice.of(by="run"))] == [(0.0, 100.0)] * 2


def test_trials_travel_with_their_points(tmp_path):
    rows = [{"step": 1, "pass_rate": 0.5, "trials": 64}, {"step": 2}, {"step": 3, "pass_rate": 0.75, "trials": 32}]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert curve.trials is not None
    assert curve.trials.tolist() == [64, 32]


def test_columns_can_be_listed_with_what_would_be_chosen(tmp_path):
    rows = [{"step": 1, "note": "warm", "pass_rate": 0.25}, {"step": 2, "pass_rate": 0.5}, {"step": 3, "pass_rate": float("nan")}]
    listing = list_columns(jsonl(tmp_path / "log.jsonl", rows))
    facts = {column.name: (column.numbers, column.first, column.last, column.text) for column in listing.columns}
    assert facts == {"step": (3, 1.0, 3.0, ""), "note": (0, None, None, "warm"), "pass_rate": (2, 0.25, 0.5, "")}
    assert listing.rows == 3
    assert said(listing.notes, "reward: 'pass_rate'")
    listing = list_columns(jsonl(tmp_path / "other.jsonl", [{"loss": 1.0}]))
    assert said(listing.notes, "no column looks like a reward")


def test_the_paper_points_are_read_without_asking_for_columns():
    curves = read_curves(PAPER_POINTS, choice=Choice.of(by="figure_key,series"))
    assert all((curve.axis, curve.metric, curve.bounds) == (DEVICE_HOURS, "pass_rate", (0.0, 1.0)) for curve in curves)
    by_name = {curve.name: curve for curve in curves}
    batch = by_name["fig10a_batch_size / bs2048"]
    assert (len(batch), batch.compute[0], batch.reward[0]) == (33, 1328.2, 0.4015)
    alone = read_curves(PAPER_POINTS, choice=Choice.of(by="series", where=["figure_key=fig2_recipes"]))
    assert [curve.name for curve in alone][:3] == ["deepseek_grpo", "qwen25_dapo", "scalerl"]
    with pytest.raises(DataError, match="which the column 'series' tells apart"):
        read_curves(PAPER_POINTS)


def test_one_column_is_not_both_compute_and_reward(tmp_path):
    path = text(tmp_path / "log.csv", "gpu_hours,pass_rate\n0.1,0.5\n")
    with pytest.raises(UsageError, match="'pass_rate' is taken for both compute and reward; choose two columns"):
        read_curves(path, choice=Choice(x="pass_rate", y="pass_rate"))


@pytest.mark.parametrize(
    ("left_out", "taken"),
    [
        ("eval_gpu_hours", "gpu_hours"),
        ("budget/gpu_hours", "gpu_hours"),
        ("eval/step_time", "step_time"),
        ("val/num_tokens", "train/num_tokens"),
        ("prompt/tokens", "tokens"),
    ],
)
def test_the_cost_of_evaluation_is_not_taken_for_the_run(tmp_path, left_out, taken):
    rows = [{"step": step, left_out: 7.0 * step, taken: 100.0 * step, "eval/acc": step / 10} for step in (1, 2, 3)]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert said(curve.notes, f"compute: '{taken}', in")


@pytest.mark.parametrize("column", ["split", "mode", "dataset", "task"])
def test_rewards_of_several_data_sets_in_one_column_are_refused_until_told_apart(tmp_path, column):
    rows = [
        {"step": step, "tokens": 10 * step, column: part, "acc": step / scale} for step in (1, 2, 3) for part, scale in (("a", 4), ("b", 8))
    ]
    path = jsonl(tmp_path / "log.jsonl", rows)
    with pytest.raises(DataError, match=f"the reward is of 2 data sets, which the column '{column}' tells apart; --by {column} makes"):
        read_curves(path)
    assert said(list_columns(path).notes, f"--by {column} makes a curve of each, --where {column}=a picks one")
    (curve,) = read_curves(path, choice=Choice.of(where=[f"{column}=b"]))
    assert curve.reward.tolist() == [0.125, 0.25, 0.375]
    assert [len(curve) for curve in read_curves(path, choice=Choice.of(by=column))] == [3, 3]


def test_a_split_whose_training_rows_have_no_reward_is_one_curve(tmp_path):
    rows = [row for s in (1, 2, 3) for row in ({"split": "train", "step": s, "tokens": s}, {"split": "eval", "step": s, "acc": s / 10})]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert (curve.compute.tolist(), curve.reward.tolist()) == ([1, 2, 3], [0.1, 0.2, 0.3])


def test_a_listing_is_of_the_rows_asked_for(tmp_path):
    path = text(tmp_path / "log.csv", "seed,step,pass_rate\n0,1,0.1\n0,2,0.2\n1,1,0.3\n1,2,0.4\n")
    assert said(list_columns(path).notes, "the log is of 2 runs")
    listing = list_columns(path, choice=Choice.of(where=["seed=1"]))
    assert (listing.rows, {column.name: column.first for column in listing.columns}["pass_rate"]) == (2, 0.3)
    assert said(listing.notes, "reward: 'pass_rate'")


def test_a_known_column_that_holds_text_is_named(tmp_path):
    path = text(tmp_path / "log.csv", 'step,gpu_hours,eval/acc,reward\n1,"1,000",10%,0.5\n2,"2,000",20%,0.6\n')
    (curve,) = read_curves(path)
    assert (curve.metric, curve.axis) == ("reward", STEPS)
    assert said(curve.notes, "'eval/acc' was not read: it holds text such as '10%'")
    assert said(curve.notes, "'gpu_hours' was not read: it holds text such as '1,000'")
    path = text(tmp_path / "other.csv", "step,eval/acc\n1,10%\n")
    with pytest.raises(DataError, match="'eval/acc' was not read: it holds text such as '10%', not numbers; choose"):
        read_curves(path)
