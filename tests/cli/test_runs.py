"""The verbs that read a run: cost, rollouts, report; and eval, which samples from one."""

import json
import shutil

import pytest

from scalerl.models.config import Config
from scalerl.tasks.chain import Chain
from scalerl.testing.synthetic_run import write_run
from tests.cli.test_main import scalerl


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "mine", num_steps=60, resume_at=7)


WIDE = {"COLUMNS": "140", "PATH": ""}


def test_cost_shows_where_everything_went(run):
    text = scalerl("cost", str(run.path), env=WIDE).stdout
    for part in ("Where 322.0 device-seconds went", "no batch", "off-device s", "unbooked", "before RL", "1 step, 4.0 device-s, 10G FLOP"):
        assert part in text
    assert "generator:0" in scalerl("cost", str(run.path), "--by", "device", env=WIDE).stdout
    ledger = json.loads(scalerl("cost", str(run.path), "--json").stdout)
    assert sum(row["device_s"] for row in ledger["rows"]) == pytest.approx(ledger["elapsed_device_s"])


def test_rollouts_shows_the_latest_step_and_what_is_kept(run):
    result = scalerl("rollouts", str(run.path), "--limit", "5", env=WIDE)
    assert "step 60, filtered by zero_variance" in result.stdout
    assert "failed (cut off), value 0, 8 tokens, version 59, cut off at its budget" in result.stdout
    assert "Interrupted after 4 tokens: 1 token inserted and not trained on, '='." in result.stdout
    assert "\x1b" not in result.stdout
    assert result.stderr == "5 completions shown; of 240 groups in the events, the completions of 240 are kept\n"


def test_rollouts_are_selected_and_printed_as_json(run):
    found = json.loads(scalerl("rollouts", str(run.path), "--step", "7", "--passed", "--limit", "2", "--json").stdout)
    assert [(row["group"], row["attempt"], row["step"], row["became"]) for row in found["rollouts"]] == [
        (25, 1, 7, "trained"),
        (26, 1, 7, "trained"),
    ]
    assert (found["groups"], found["groups_kept"]) == (240, 240)
    of_prompt = json.loads(scalerl("rollouts", str(run.path), "--prompt", "chain/3", "--json").stdout)["rollouts"]
    assert {row["prompt_id"] for row in of_prompt} == {"chain/3"}
    nothing = scalerl("rollouts", str(run.path), "--step", "99")
    assert (nothing.stdout, nothing.returncode) == ("", 0)
    assert nothing.stderr == "0 completions shown; of 240 groups in the events, the completions of 240 are kept, of steps up to 60\n"


def test_the_report_of_a_run_goes_into_its_folder(run):
    result = scalerl("report", str(run.path), env=WIDE)
    assert result.returncode == 0, result.stderr
    assert (run.path / "report.html").read_text().count("What the run did") == 1
    for part in (
        "Run mine",
        "The first half of the compute forecast",
        "holds the ceiling that the task proves",
        "What happened",
        "Parameters of the sigmoid",
    ):
        assert part in result.stdout
    again = json.loads(scalerl("report", str(run.path), "--json").stdout)
    assert again["runs"][0]["name"] == "mine"
    assert again["curves"][0]["status"] == "ok"


def test_each_of_several_runs_is_held_against_its_own_proved_ceiling(tmp_path):
    runs = [write_run(tmp_path / name, num_steps=60, ceiling=ceiling).path for name, ceiling in (("one", 0.85), ("two", 0.7))]
    result = scalerl("report", *map(str, runs), "--out", str(tmp_path / "both.html"), "--json")
    checked = [(run["ceiling_checks"][0]["curve"], run["ceiling_checks"][0]["proved"]) for run in json.loads(result.stdout)["runs"]]
    assert checked == [(f"{runs[0]}: chain", 0.85), (f"{runs[1]}: chain", 0.7)]


def test_a_short_runs_report_is_no_failure_unless_it_is_strict(tmp_path):
    run = write_run(tmp_path / "short", num_steps=8)
    assert [scalerl("report", str(run.path), *strict).returncode for strict in ((), ("--strict",))] == [0, 4]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "sentence"),
    [
        (["cost", "."], 2, "this is no run directory"),
        (["rollouts", "."], 2, "this is no run directory"),
        (["report", "log.csv"], 2, "--out: it is not said where to write; give --out FILE.html"),
        (["report", "none.csv"], 3, "none.csv: there is no such file"),
        (["eval", "none", "chain", "--k", "a"], 2, "--k: 'a' is no list of numbers from 1 on; write for example --k 1,4"),
        (["eval", "none", "chain", "--k", "0,4"], 2, "--k: '0,4' is no list of numbers from 1 on"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, exit_code, sentence, tmp_path):
    (tmp_path / "log.csv").write_text("flops,pass_rate\n1e9,0.2\n2e9,0.3\n")
    result = scalerl(*arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (exit_code, "")
    assert sentence in result.stderr


def test_eval_prints_intervals(run, tmp_path):
    folder = tmp_path / "run" / "checkpoints" / "step-000020"
    shutil.copytree(run.path, tmp_path / "run")
    folder.mkdir(parents=True)
    tiny = Config(dtype="float32", hidden_size=16, num_layers=1, num_heads=1, num_kv_heads=1, intermediate_size=16)
    tiny.build(alphabet=Chain().alphabet(), seed=3).save(folder)
    shown = scalerl("eval", str(tmp_path / "run"), "--samples", "2", "--limit", "20", "--json")
    found = json.loads(shown.stdout)
    assert found["mean@2"]["num_prompts"] == 20
    assert found["mean@2"]["low"] <= found["mean@2"]["value"] <= found["maj@2"]["high"]
    assert "2 completions of 20 prompts of 'chain'" in shown.stderr
