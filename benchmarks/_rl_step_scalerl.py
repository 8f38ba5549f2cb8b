"""The side of vs_trl.py that is scalerl: python _rl_step_scalerl.py FOLDER NUM_STEPS RUNTIME K"""

import os
import sys
import tempfile
from pathlib import Path

from _rl_step import COMPLETION_TOKENS, GROUP, LEARNING_RATE, NUM_PROMPTS, PROMPT_TOKENS, Moment, now, report

from scalerl.recipes import resolve
from scalerl.records.events import RunEntry, StepFinished
from scalerl.runs.training import train

RECIPE = """
model = {{ type = "checkpoint", path = "{folder}/model", head = "fp32", dtype = "float32" }}
task = {{ type = "prompts", path = "{folder}/prompts.jsonl", graded_by = "_letters", num_held_out = 16 }}
batch = {{ prompts = {prompts}, group = {group} }}
length = {{ prompt_tokens = {prompt_tokens}, completion_tokens = {completion_tokens}, control = "truncation" }}
objective = {{ loss = {{ type = "cispo", cap = 5.0 }}, advantage = {{ type = "centred", scale = "batch" }}, aggregation = "token" }}
curriculum = {{ selector = "uniform" }}
engine = {{ type = "embedded", slots = {slots} }}
pipeline = {{ schedule = "pipeline_rl", k = {k} }}
trainer = {{ type = "single", micro_batch_tokens = 4096, optimizer = {{ learning_rate = {rate}, warmup_steps = 0 }} }}
evaluation = {{ every_steps = 1000000, early_growth = 1e6 }}
budget = {{ steps = {steps} }}
runtime = {{ type = "{runtime}" }}
checkpoints = {{ every_steps = 1000000 }}
rollouts = {{ share = 0.0 }}
"""


def main(folder: Path, num_steps: int, runtime: str, k: int) -> None:
    """A run from the base in `folder`; evaluations lie before its first step and after its last."""
    announce_grader(folder)
    os.environ["SCALERL_CACHE"] = str(folder)
    place = Path(tempfile.mkdtemp(dir=folder))
    recipe = place / "recipe.toml"
    recipe.write_text(
        RECIPE.format(
            folder=folder,
            prompts=NUM_PROMPTS,
            group=GROUP,
            prompt_tokens=PROMPT_TOKENS,
            completion_tokens=COMPLETION_TOKENS,
            slots=NUM_PROMPTS * GROUP,
            rate=LEARNING_RATE,
            steps=num_steps,
            runtime=runtime,
            k=k,
        )
    )
    ends: list[Moment] = []

    def watch(entry: RunEntry) -> None:
        if isinstance(entry.event, StepFinished):
            ends.append(now())

    train(resolve(recipe), place / "run", observers=(watch,))
    report(ends)


def announce_grader(folder: Path) -> None:
    """Make the grader beside this file selectable, as that of an installed plug-in is."""
    metadata = folder / "letters-1.0.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: letters\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[scalerl.graders]\nletters = _letters\n")
    sys.path.append(str(folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
