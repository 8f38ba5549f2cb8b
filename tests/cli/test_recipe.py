"""`scalerl recipe`: neighbours as commands that train, and configurations of other libraries as recipes."""

import json
import shlex
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from scalerl.cli.recipe import app
from scalerl.recipes import resolve
from scalerl.recipes.neighbours import neighbours


@pytest.fixture
def recipe(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def test_neighbours_are_printed_as_commands_that_make_them(recipe):
    lines = recipe("neighbours", "scalerl", "--scale", "paper-8b", "--set", "pipeline.k=4").stdout.splitlines()
    expected = neighbours("scalerl", scale="paper-8b", overrides=["pipeline.k=4"])
    assert [line.split(":")[0] for line in lines[::2]] == [f"# {neighbour.name}" for neighbour in expected]
    for command, neighbour in zip(lines[1::2], expected, strict=True):
        words = shlex.split(command)
        assert words[:5] == ["scalerl", "train", "scalerl", "--scale", "paper-8b"]
        assert words[5::2] == ["--set"] * len(words[6::2])
        assert resolve("scalerl", scale="paper-8b", overrides=words[6::2]) == neighbour.recipe


def test_neighbours_as_json(recipe):
    found = json.loads(recipe("neighbours", "scalerl", "--towards-set", "length.control=penalty", "--json").stdout)
    by_ingredient = {record["ingredient"]: record for record in found}
    assert by_ingredient["control"]["name"] == "scalerl~control=penalty"
    assert by_ingredient["head"]["changes"] == [{"path": "model.head", "left": "fp32", "right": "body"}]
    for record in found:
        assert resolve("scalerl", overrides=record["set"]).hash == record["hash"]


def test_without_a_difference_there_are_no_commands(recipe):
    result = recipe("neighbours", "scalerl", "--towards", "scalerl")
    assert (result.stdout, result.stderr) == ("", "no ingredient differs\n")


def test_from_trl_prints_a_recipe_and_tells_the_rest_on_stderr(recipe, tmp_path):
    path, translated = tmp_path / "config.yaml", tmp_path / "mine.toml"
    path.write_text("loss_type: cispo\nepsilon_high: 5.0\nlearning_rate: 5e-7\ntop_p: .9\nlogging_steps: 1\nsave_steps: 500\nbf16: null\n")
    result = recipe("from-trl", path, "--processes", 2)
    translated.write_text(result.stdout)
    shown = json.loads(recipe("show", translated, "--json").stdout)["recipe"]
    assert shown["objective"]["loss"] == {"type": "cispo", "cap": 5.0}
    assert shown["batch"]["prompts"] == 2
    rows = {line.split()[0]: line for line in result.stderr.splitlines()}
    assert "objective.loss = cispo(cap=5.0)" in rows["epsilon_high"]
    assert "LEFT OUT" in rows["top_p"]
    assert "linear (default)" in rows["lr_scheduler_type"]
    assert "1 setting without effect on what is learned: --json lists them" in result.stderr


def test_from_verl_prints_json_with_every_setting(recipe, tmp_path):
    path = tmp_path / "run.sh"
    path.write_text("main algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=8 trainer.nnodes=4 algorithm.unheard_of=1\n")
    record = json.loads(recipe("from-verl", path, "--json").stdout)
    assert record["library"] == "verl 0.9.1"
    assert record["recipe"]["objective"]["loss"] == {"type": "ppo", "clip": 0.2, "dual_clip": 3.0}
    fates = {setting["key"]: setting["fate"] for setting in record["settings"]}
    assert (fates["trainer.nnodes"], fates["algorithm.unheard_of"], fates["actor_rollout_ref.rollout.n"]) == (
        "no effect",
        "left out",
        "translated",
    )


def test_a_file_steers_no_terminal(recipe, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"top_p": "\x1b[31m", "x\x1b[31m": 1}))
    result = recipe("from-trl", path)
    assert "\x1b" not in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("text", "code", "sentence"),
    [
        ("loss_type: sapo", 3, "scalerl: config.yaml: loss_type: 'sapo' has no counterpart here; those with one are"),
        ("temperature: 0", 2, "scalerl: config.yaml: engine.temperature: 0.0 does not fit"),
    ],
)
def test_mistakes_have_the_exit_code_of_their_kind(tmp_path, text, code, sentence):
    (tmp_path / "config.yaml").write_text(text)
    command = [sys.executable, "-m", "scalerl.cli.main", "recipe", "from-trl", "config.yaml"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == code
    assert result.stderr.startswith(sentence)
    assert len(result.stderr.splitlines()) == 1
