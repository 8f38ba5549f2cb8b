"""trainer_state.json, as written here by hand, by transformers' Trainer, and by TRL's where it is installed."""

import json

import pytest

from scalerl.core.errors import DataError
from scalerl.core.units import SECONDS, STEPS, TOKENS
from scalerl.importers import Choice, list_columns, read_curves
from tests.importers.logs import said, text
from tests.tiny_trainer import tiny_trainer

I5_HISTORY = [
    {"step": 10, "epoch": 0.5, "loss": 0.0, "reward": 0.20, "rewards/accuracy_reward/mean": 0.15, "num_tokens": 4000},
    {"step": 10, "epoch": 0.5, "eval_reward": 0.25, "eval_runtime": 3.0},
    {"step": 20, "epoch": 1.0, "loss": -0.01, "reward": 0.30, "rewards/accuracy_reward/mean": 0.22, "num_tokens": 9000},
    {"step": 20, "epoch": 1.0, "train_runtime": 61.0, "train_loss": -0.005, "total_flos": 0.0},
]


def state(path, history, *, global_step=20):
    path.parent.mkdir(parents=True, exist_ok=True)
    return text(path, json.dumps({"global_step": global_step, "log_history": history}, indent=2))


def test_i5_train_and_eval_rows_are_told_apart_by_their_names(tmp_path):
    path = state(tmp_path / "trainer_state.json", I5_HISTORY)
    (evaluation,) = read_curves(path)
    assert (evaluation.metric, evaluation.axis) == ("eval_reward", TOKENS)
    assert (evaluation.compute.tolist(), evaluation.reward.tolist()) == ([4000], [0.25])
    assert said(evaluation.notes, "TRL's name for a held-out evaluation (also there: 'reward'")
    (training,) = read_curves(path, choice=Choice(y="reward"))
    assert (training.compute.tolist(), training.reward.tolist()) == ([4000, 9000], [0.20, 0.30])


def test_i5_the_summary_row_is_no_point(tmp_path):
    listing = list_columns(state(tmp_path / "trainer_state.json", I5_HISTORY))
    assert listing.rows == 3
    assert not {"train_runtime", "total_flos"} & {column.name for column in listing.columns}


def test_i5_a_column_answers_to_the_name_that_older_versions_gave_it(tmp_path):
    (curve,) = read_curves(state(tmp_path / "trainer_state.json", I5_HISTORY), choice=Choice(y="rewards/accuracy_reward"))
    assert curve.reward.tolist() == [0.15, 0.22]


def test_nulls_and_bare_nan_are_no_values(tmp_path):
    rows = ['"step": 1, "num_tokens": 5, "eval_reward": null', '"step": 2, "num_tokens": 9, "eval_reward": NaN']
    history = ", ".join(f"{{{row}}}" for row in [*rows, '"step": 3, "num_tokens": 12, "eval_reward": 0.5'])
    (curve,) = read_curves(text(tmp_path / "trainer_state.json", f'{{"log_history": [{history}], "global_step": 3}}'))
    assert (curve.compute.tolist(), curve.reward.tolist()) == ([12], [0.5])
    assert said(curve.notes, "1 value of 'eval_reward' left out: not a finite number")


def evaluation(step, data_set, metrics):
    """A row as the trainer logs it after one of several data sets."""
    return {"step": step, "epoch": 0.1 * step, f"eval_{data_set}_loss": 0.0, f"eval_{data_set}_runtime": 3.0, **metrics}


SEVERAL = {"math": [0.2, 0.3, 0.4], "math_hard": [0.1, 0.1, 0.2], "code": [0.6, 0.7, 0.8]}


def history_of_several(metric_of, scores_of=SEVERAL):
    history = []
    for step in (1, 2, 3):
        history.append({"step": step, "reward": 0.5, "num_tokens": 100 * step})
        history += [evaluation(step, name, {metric_of(name): scores[step - 1]}) for name, scores in scores_of.items()]
    return history


@pytest.mark.parametrize(
    "metric_of",
    [
        lambda name: "eval_reward",  # TRL's own metrics do not name the data set
        lambda name: "eval_rewards/accuracy_reward/mean",
        lambda name: f"eval_{name}_reward",
        lambda name: f"eval_{name}_accuracy",
        lambda name: f"eval_{name}_strict_accuracy",
    ],
)
def test_every_data_set_of_a_dictionary_has_its_own_curve(tmp_path, metric_of):
    path = state(tmp_path / "trainer_state.json", history_of_several(metric_of))
    curves = {curve.name: curve for curve in read_curves(path)}
    assert {name: curve.reward.tolist() for name, curve in curves.items()} == SEVERAL
    assert all(curve.compute.tolist() == [100, 200, 300] for curve in curves.values())
    metric = metric_of("DATA").replace("eval_DATA_", "eval_").removeprefix("eval_")
    assert {name: curve.metric for name, curve in curves.items()} == {name: f"eval_{name}_{metric}" for name in SEVERAL}
    assert not any(said(curve.notes, "left out") for curve in curves.values())
    (math,) = read_curves(path, choice=Choice(y=f"eval_math_{metric}"))
    assert math.reward.tolist() == SEVERAL["math"]


def test_the_rows_of_a_tracker_are_told_apart_too(tmp_path):
    rows = [
        {name.replace("eval_", "eval/", 1): cell for name, cell in row.items()} for row in history_of_several(lambda name: "eval_reward")
    ]
    curves = read_curves(text(tmp_path / "log.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    assert {curve.name: curve.reward.tolist() for curve in curves} == SEVERAL
    assert {curve.metric for curve in curves} == {f"eval/{name}_reward" for name in SEVERAL}


def test_several_data_sets_in_one_cell_are_no_curve(tmp_path):
    """A format with one row for each step, such as TensorBoard's, keeps the last data set alone."""
    rows = [{"step": step, "reward": 0.5, "eval/math_runtime": 3.0, "eval/code_runtime": 2.0, "eval/reward": 0.1} for step in (1, 2, 3)]
    (curve,) = read_curves(text(tmp_path / "log.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    assert curve.metric == "reward"
    assert said(curve.notes, "'eval/reward' left out where one row is of several data sets: code, math")


def test_one_data_set_keeps_the_names_of_its_columns(tmp_path):
    history = history_of_several(lambda name: "eval_reward", {"math": SEVERAL["math"]})
    (curve,) = read_curves(state(tmp_path / "trainer_state.json", history))
    assert (curve.metric, curve.reward.tolist()) == ("eval_reward", SEVERAL["math"])


@pytest.mark.parametrize("folder", ["run", "run/checkpoint-20"])
def test_the_last_checkpoint_of_a_run_is_read(tmp_path, folder):
    for steps in (3, 20):
        history = [{"step": step, "eval_reward": step / 100} for step in range(1, steps + 1)]
        state(tmp_path / f"run/checkpoint-{steps}/trainer_state.json", history, global_step=steps)
    (curve,) = read_curves(tmp_path / folder)
    assert len(curve) == 20
    assert said(curve.notes, "read from", "trainer_state.json", "the latest in the folder")


def test_the_state_of_the_whole_run_is_read_unless_a_checkpoint_is_later(tmp_path):
    state(tmp_path / "checkpoint-9/trainer_state.json", [{"step": 9, "eval_reward": 0.9}], global_step=9)
    whole = state(tmp_path / "trainer_state.json", [{"step": 10, "eval_reward": 1.0}], global_step=10)
    assert read_curves(tmp_path)[0].compute.tolist() == [10]
    state(whole, [{"step": 8, "eval_reward": 0.8}], global_step=8)
    assert read_curves(tmp_path)[0].compute.tolist() == [9]


@pytest.mark.parametrize("content", ['{"log_history": [{"step": 1, "eval_re', '{"global_step": 3}', '{"log_history": 7}', "[1]"])
def test_a_state_without_a_history_is_one_sentence(tmp_path, content):
    with pytest.raises(DataError, match=r"it is no JSON document with a 'log_history'|it is no log in a known format"):
        read_curves(text(tmp_path / "trainer_state.json", content))


def test_another_name_will_do(tmp_path):
    (curve,) = read_curves(state(tmp_path / "saved.json", I5_HISTORY), choice=Choice(x="step", y="reward"))
    assert (curve.axis, curve.compute.tolist()) == (STEPS, [10, 20])


def test_transformers_own_trainer(tmp_path):
    """A tiny Llama, evaluated after each of its three steps; what the trainer reported is what is read."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")

    def accuracy(prediction):
        return {"accuracy": float((prediction.predictions[:, :-1].argmax(-1) == prediction.label_ids[:, 1:]).mean())}

    trainer = tiny_trainer(tmp_path / "run", num_rows=8, max_steps=3, save_steps=2, compute_metrics=accuracy)
    trainer.train()
    trainer.save_state()
    reported = [row for row in trainer.state.log_history if "eval_accuracy" in row]
    for path in (tmp_path / "run", tmp_path / "run/trainer_state.json", tmp_path / "run/checkpoint-3"):
        (curve,) = read_curves(path)
        assert (curve.metric, curve.axis) == ("eval_accuracy", TOKENS)
        assert curve.reward.tolist() == [row["eval_accuracy"] for row in reported]
        assert curve.compute.tolist() == [32, 64, 96]
    (by_steps,) = read_curves(tmp_path / "run", choice=Choice(x="step", y="eval_accuracy"))
    assert by_steps.compute.tolist() == [1, 2, 3]


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")  # TRL 1.16 sets what transformers 5.24 renamed
def test_trl_own_trainer(tmp_path):
    """GRPO on a tiny Llama with a held-out set, where TRL is installed."""
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    datasets = pytest.importorskip("datasets")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = {word: place for place, word in enumerate(["<pad>", "<eos>", "a", "b", "c", "d"])}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="a")), pad_token="<pad>", eos_token="<eos>"
    )
    shape = {"vocab_size": 6, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    prompts = datasets.Dataset.from_dict({"prompt": ["a", "b", "c", "d"]})
    trainer = trl.GRPOTrainer(
        model=transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape)),
        reward_funcs=lambda completions, **_: [float("b" in completion) for completion in completions],
        args=trl.GRPOConfig(
            output_dir=str(tmp_path / "run"),
            max_steps=4,
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=2,
            save_steps=2,
            report_to=[],
            use_cpu=True,
            num_generations=2,
            per_device_train_batch_size=4,
            per_device_eval_batch_size=4,
            max_completion_length=4,
        ),
        processing_class=tokenizer,
        train_dataset=prompts,
        eval_dataset=prompts,
    )
    trainer.train()
    reported = [row["eval_reward"] for row in trainer.state.log_history if "eval_reward" in row]
    (curve,) = read_curves(tmp_path / "run")
    assert (curve.metric, curve.axis) == ("eval_reward", SECONDS)
    assert curve.reward.tolist() == reported
    (by_tokens,) = read_curves(tmp_path / "run", choice=Choice(x="tokens"))
    assert by_tokens.compute.tolist() == sorted(by_tokens.compute.tolist())
