"""The callback in a real transformers Trainer, whose evaluation is a planted curve."""

import pytest

from scalerl.core.errors import UsageError
from scalerl.core.units import FLOPS, STEPS, TOKENS
from tests.live.curves import reward
from tests.tiny_trainer import tiny_trainer

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")

from transformers import TrainerControl, TrainerState

from scalerl.live import ForecastCallback

STEPS_IN_ALL = 40


def trained(
    callback, folder, *, metrics=lambda step: {"accuracy": reward(step, A=0.4)}, max_steps=STEPS_IN_ALL, resume=None, eval_on_start=False
):
    """A trainer that has run: a tiny Llama, evaluated after every step; what it is said to score is planted."""
    trainer = tiny_trainer(
        folder,
        num_rows=4,
        max_steps=max_steps,
        save_steps=10,
        compute_metrics=lambda _: metrics(trainer.state.global_step),
        callbacks=[callback],
        eval_on_start=eval_on_start,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_a_run_that_will_not_reach_the_target_is_ended(tmp_path):
    lines = []
    callback = ForecastCallback(target=0.6, action="stop", metric="eval_accuracy", write=lines.append)
    trainer = trained(callback, tmp_path)
    assert 8 <= trainer.state.global_step < STEPS_IN_ALL
    assert len(lines) == trainer.state.global_step - 7
    assert lines[-1].startswith(f"scalerl: eval_accuracy after {trainer.state.global_step} steps: ")
    assert "at 40 steps; reaches 0.600 there with probability 0.0" in lines[-1]
    assert lines[-1].endswith(": stop")
    assert not any(line.endswith("stop") for line in lines[:-1])


@pytest.mark.parametrize(("x", "axis"), [("tokens", TOKENS), ("flops", FLOPS)])
def test_compute_may_be_counted_in_tokens_or_flops(tmp_path, x, axis):
    callback = ForecastCallback(metric="eval_accuracy", x=x, write=lambda line: None)
    trainer = trained(callback, tmp_path, max_steps=9)
    (prospect,) = callback.prospects
    curve = prospect.answer.curve
    in_all = trainer.state.num_input_tokens_seen if x == "tokens" else trainer.state.total_flos
    assert curve.axis == axis
    assert curve.compute.tolist() == pytest.approx([in_all * step / 9 for step in range(1, 10)])
    assert curve.reward.tolist() == [reward(step, A=0.4) for step in range(1, 10)]


def test_a_resumed_run_goes_on_with_its_points(tmp_path):
    trained(ForecastCallback(write=lambda line: None), tmp_path, max_steps=10)
    lines = []
    callback = ForecastCallback(metric="eval_accuracy", write=lines.append)
    trained(callback, tmp_path, max_steps=12, resume=str(tmp_path / "checkpoint-10"))
    assert [line.split(":")[1] for line in lines] == [" eval_accuracy after 11 steps", " eval_accuracy after 12 steps"]
    assert callback.prospects[0].answer.curve.axis == STEPS


def test_every_data_set_is_forecast_by_itself(tmp_path):
    """As TRL logs: one call for each data set, with `eval_reward` in each row."""
    lines, state, control = [], TrainerState(is_world_process_zero=True, max_steps=40), TrainerControl()
    callback = ForecastCallback(target=0.6, action="stop", write=lines.append)
    ceilings = {"math": 0.4, "code": 0.9}
    for state.global_step in range(1, 11):
        for name, A in ceilings.items():
            row = {"step": state.global_step, f"eval_{name}_runtime": 1.0, "eval_reward": reward(state.global_step, A=A)}
            state.log_history.append(row)
            callback.on_evaluate(None, state, control)
    assert [line.split(":")[1] for line in lines] == [f" eval_{name}_reward after {step} steps" for step in (8, 9, 10) for name in ceilings]
    curves = {prospect.answer.curve.metric: prospect.answer.curve.reward.tolist() for prospect in callback.prospects}
    assert curves == {f"eval_{name}_reward": [reward(step, A=A) for step in range(1, 11)] for name, A in ceilings.items()}
    assert not control.should_training_stop


def test_too_few_points_say_nothing(tmp_path):
    lines = []
    trained(ForecastCallback(target=0.6, action="stop", metric="eval_accuracy", write=lines.append), tmp_path, max_steps=7)
    assert lines == []


def test_nothing_that_is_logged_ends_the_training_but_is_told(tmp_path):
    lines = []
    values = [0.2, float("nan"), 1e9, -3.0, float("inf"), 0.1, 0.2, 0.3, 0.4, 0.5]
    trainer = trained(
        ForecastCallback(metric="eval_accuracy", write=lines.append),
        tmp_path,
        metrics=lambda step: {"accuracy": values[step - 1]},
        max_steps=10,
    )
    assert trainer.state.global_step == 10
    assert len(lines) == 1
    assert lines[0].startswith("scalerl: no forecast: the trainer's log history: 'eval_accuracy' spans -3 .. 1e+09")


def test_f4_a_loss_is_refused_in_one_sentence():
    with pytest.raises(UsageError, match=r"^eval_loss: a value to be minimised has no ceiling to forecast; report a bounded reward"):
        ForecastCallback(metric="eval_loss")


def test_an_evaluation_before_the_first_step_is_a_point(tmp_path):
    callback = ForecastCallback(metric="eval_accuracy", write=lambda line: None)
    trained(callback, tmp_path, max_steps=9, eval_on_start=True)
    assert callback.prospects[0].answer.curve.compute.tolist() == list(range(10))


def test_a_target_in_another_unit_stops_nothing_but_is_told(tmp_path):
    callback = ForecastCallback(target=60.0, action="stop", metric="eval_accuracy", write=lambda line: None)
    with pytest.warns(RuntimeWarning, match=r"no forecast for .*: the reward to be reached, 60, is outside 0 .. 1; give targets"):
        trainer = trained(callback, tmp_path, max_steps=10)
    assert trainer.state.global_step == 10


@pytest.mark.parametrize("place", ["scalerl.live.rule.fit", "scalerl.live.transformers.curves_of"])
def test_a_fault_of_the_forecast_ends_no_training(tmp_path, monkeypatch, place):
    def broken(*_, **__):
        raise ZeroDivisionError("as planted")

    monkeypatch.setattr(place, broken)
    with pytest.warns(RuntimeWarning, match="no forecast for the run: ZeroDivisionError: as planted"):
        trainer = trained(ForecastCallback(metric="eval_accuracy", target=0.6, action="stop"), tmp_path, max_steps=10)
    assert trainer.state.global_step == 10


def test_a_line_that_cannot_be_written_ends_no_training(tmp_path):
    def broken(_):
        raise BrokenPipeError("as planted")

    with pytest.warns(RuntimeWarning, match="no forecast for the run: BrokenPipeError: as planted"):
        trainer = trained(ForecastCallback(metric="eval_accuracy", write=broken), tmp_path, max_steps=10)
    assert trainer.state.global_step == 10


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"action": "stop"}, "action 'stop' stops nothing; give action='stop' with a target"),
        ({"action": "STOP", "target": 0.6}, "action 'STOP' stops nothing"),
        ({"budget": 0.0}, "0 is no budget"),
        ({"target": float("nan")}, "the reward to be reached, nan, is outside"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_the_training(settings, message):
    with pytest.raises(UsageError, match=f"^ForecastCallback: {message}"):
        ForecastCallback(**settings)
