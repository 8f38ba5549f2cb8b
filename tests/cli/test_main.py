"""The command line's frame: verbs by file, answers at once, mistakes in one sentence with the right exit code."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from scalerl.cli.main import verbs

WIDE = {"COLUMNS": "140", "PATH": ""}
HEAVY = ("torch", "transformers", "ray", "vllm")


def scalerl(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "scalerl.cli.main", *arguments], capture_output=True, text=True, check=False, **options)


def test_help_lists_every_verb_with_its_line():
    result = scalerl("--help", env={"COLUMNS": "200", "PATH": ""})
    assert result.returncode == 0
    for verb in verbs():
        assert verb in result.stdout
    assert "List recipes, show one, tell what two differ in, find the neighbours of one" in result.stdout


def test_help_answers_within_half_a_second():
    """In CPU time of the child, the best of three: a busy machine is not the command's fault."""
    durations_s = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        scalerl("--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        durations_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(durations_s) < 0.5


def test_without_arguments_there_is_help():
    result = scalerl()
    assert "Usage:" in result.stdout + result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_under_stdout_is_one_sentence():
    command = [sys.executable, "-m", "scalerl.cli.main", "recipe", "show", "scalerl"]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            command,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == 1
    assert result.stderr.splitlines()[0] == "scalerl: the output cannot be written (No space left on device)"


def test_a_reader_that_has_seen_enough_is_no_error():
    command = f"{sys.executable} -m scalerl.cli.main recipe show scalerl | head -1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert (result.stdout[:2], result.stderr) == ("# ", "")


@pytest.mark.parametrize(
    "code",
    [
        "import scalerl",
        "import scalerl.cli.main as m; [__import__('importlib').import_module(f'scalerl.cli.{verb}') for verb in m.verbs()]",
        "import scalerl; scalerl.resolve('scalerl'); scalerl.fit; scalerl.read_curves; scalerl.write_html",
    ],
)
def test_nothing_heavy_is_imported(code):
    heavy = f"import sys, json; print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    result = subprocess.run([sys.executable, "-c", f"{code}\n{heavy}"], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == []


def test_importing_the_package_imports_no_room():
    code = "import scalerl, sys; print([name for name in sys.modules if name.startswith('scalerl.') or name in ('numpy', 'pydantic')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_every_public_name_exists():
    import scalerl

    assert all(getattr(scalerl, name) is not None for name in scalerl.__all__)
    assert set(scalerl.__all__) <= set(dir(scalerl))
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        _ = scalerl.fitt


@pytest.mark.parametrize(
    ("arguments", "exit_code", "sentence"),
    [
        (["recipes"], 2, "scalerl: there is no verb 'recipes'; did you mean 'recipe'?"),
        (["recipe", "show", "scalrl"], 2, "scalerl: there is no recipe 'scalrl'; did you mean 'scalerl'?"),
        (["recipe", "show", "scalerl", "--scale", "labtop"], 2, "scalerl: there is no scale 'labtop'; did you mean 'laptop'?"),
        (["recipe", "show", "scalerl", "--set", "batch.gruop=4"], 2, "--set: batch.gruop: there is no such key; did you mean 'group'?"),
        (["fit"], 2, "scalerl: Missing argument 'LOG'; see scalerl fit --help"),
        (["fit", "log.csv", "--windw", "3"], 2, "scalerl: No such option: --windw"),
        (["fit", "log.csv", "--gpus", "many"], 2, "scalerl: Invalid value for '--gpus'"),
        (["cost", ".", "--by", "nonsense"], 2, "scalerl: Invalid value for '--by': 'nonsense' is not one of 'activity', 'device'; see"),
        (["recipe", "lst"], 2, "scalerl: No such command 'lst'. Did you mean 'list'?; see scalerl recipe --help"),
        (["fit", "\x1b[31mred\x07.csv"], 3, "scalerl: ?[31mred?.csv: there is no such file"),
        (["recipe", "show", "none.toml"], 2, "scalerl: none.toml: there is no such file"),
    ],
)
def test_a_mistake_is_one_sentence_on_stderr(arguments, exit_code, sentence):
    result = scalerl(*arguments)
    assert result.returncode == exit_code
    assert result.stdout == ""
    assert sentence in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_package_that_is_missing_is_one_sentence():
    missing = "import sys; sys.modules['torch'] = None; import scalerl.cli.main as m; m.app = lambda **_: __import__('torch'); m.main()"
    result = subprocess.run([sys.executable, "-c", missing], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == "scalerl: this needs the package torch, which is not installed; install it with: pip install 'scalerl[train]'\n"


def test_a_file_that_the_system_refuses_is_named():
    refusing = "import scalerl.cli.main as m; m.app = lambda **_: open('/nowhere/log.csv'); m.main()"
    result = subprocess.run([sys.executable, "-c", refusing], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (1, "scalerl: /nowhere/log.csv cannot be used (No such file or directory)\n")


def test_recipe_show_prints_a_file_that_is_the_recipe(tmp_path):
    shown = scalerl("recipe", "show", "magistral", "--scale", "paper-8b", "--set", "batch.group=8").stdout
    assert shown.startswith("# ")
    assert "48 prompts x 8 completions = 384 completions per step" in shown
    path = tmp_path / "mine.toml"
    path.write_text(shown)
    again = json.loads(scalerl("recipe", "show", str(path), "--json").stdout)
    assert again["hash"] == shown[2:14]
    assert again["recipe"]["batch"]["group"] == 8


def test_recipe_diff_names_what_differs():
    found = json.loads(scalerl("recipe", "diff", "qwen2.5-dapo", "magistral", "--json").stdout)
    assert found == [{"path": "pipeline.schedule", "left": {"type": "ppo_off_policy"}, "right": {"type": "pipeline_rl"}}]
    table = scalerl("recipe", "diff", "scalerl", "baseline", env={"COLUMNS": "150"}).stdout
    assert "[zero_variance(refill=false)]" in table
    assert "no difference" in scalerl("recipe", "diff", "scalerl", "scalerl").stdout


def test_recipe_diff_lays_the_scale_under_what_takes_one(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(scalerl("recipe", "show", "scalerl", "--scale", "paper-8b").stdout)
    assert json.loads(scalerl("recipe", "diff", str(path), "scalerl", "--scale", "paper-8b", "--json").stdout) == []
    assert json.loads(scalerl("recipe", "diff", "scalerl", str(path), "--scale", "paper-8b", "--json").stdout) == []
    refused = scalerl("recipe", "diff", str(path), str(path), "--scale", "paper-8b")
    assert refused.returncode == 2
    assert "it has every section, so no scale lies under it; leave --scale out" in refused.stderr


def test_recipe_diff_lets_no_file_steer_the_terminal(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('extends = "scalerl"\n[length.control]\nphrase = "\\u001b[31mred"\n')
    shown = scalerl("recipe", "diff", "scalerl", str(path), env={"COLUMNS": "250"}).stdout
    assert "[31mred" in shown
    assert "\x1b" not in shown


def test_recipe_list_names_the_catalogue_and_the_scales():
    listed = json.loads(scalerl("recipe", "list", "--json").stdout)
    assert {"scalerl", "minimax-m1", "magistral", "qwen2.5-dapo", "deepseek-grpo", "baseline", "million-grpo"} <= set(listed["recipes"])
    assert {"laptop", "paper-8b"} <= set(listed["scales"])
    assert f"scales: {', '.join(listed['scales'])} (default laptop)" in scalerl("recipe", "list", env=WIDE).stdout
