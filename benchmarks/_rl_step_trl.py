"""The side of vs_trl.py that is TRL: python _rl_step_trl.py FOLDER NUM_STEPS NUM_THREADS SETTINGS_AS_JSON"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from _rl_step import COMPLETION_TOKENS, GROUP, LEARNING_RATE, LETTER, NUM_PROMPTS, Moment, now, report
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

ROWS_PER_PASS = 64


class Watch(TrainerCallback):  # type: ignore[misc]
    """Keeps the end of every step."""

    def __init__(self) -> None:
        self.ends: list[Moment] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """One more."""
        self.ends.append(now())


def share(completions: list[str], **_: Any) -> list[float]:
    """The reward."""
    return [completion.count(LETTER) / len(completion) for completion in completions]


def main(folder: Path, num_steps: int, num_threads: int, settings: dict[str, Any]) -> None:
    """Train from the checkpoint in `folder`; `settings` go to TRL's configuration."""
    torch.set_num_threads(num_threads)
    tokenizer = AutoTokenizer.from_pretrained(folder / "model", padding_side="left")
    # The first number beyond the vocabulary, as in the checkpoint's configuration: TRL asks for a token that ends completions.
    tokenizer.add_special_tokens({"eos_token": "<never>"})
    rows = [json.loads(line) for line in (folder / "prompts.jsonl").read_text().splitlines()]
    arguments = GRPOConfig(
        output_dir=str(folder / "trl"),
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=ROWS_PER_PASS,
        gradient_accumulation_steps=NUM_PROMPTS * GROUP // ROWS_PER_PASS,
        num_generations=GROUP,
        max_completion_length=COMPLETION_TOKENS,
        loss_type="cispo",
        epsilon_high=5.0,
        scale_rewards="batch",
        cast_lm_head_to_fp32=True,
        beta=0.0,
        learning_rate=LEARNING_RATE,
        max_steps=num_steps,
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **settings,
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32),
        reward_funcs=share,
        args=arguments,
        train_dataset=Dataset.from_list([{"prompt": row["prompt"]} for row in rows]),
        processing_class=tokenizer,
        callbacks=[watch := Watch()],
    )
    trainer.train()
    report(watch.ends)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
