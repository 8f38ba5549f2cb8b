"""What TRL's own trainer computes for the input of peers.json, in float64 on the CPU: `python -m tests.objective.trl_values`.

Its `_compute_loss` runs as it is; only the model's forward pass is replaced, by the log-probs of the input.
"""

import json
import tempfile
from pathlib import Path

import torch

PEERS = json.loads((Path(__file__).parent / "peers.json").read_text())
LOSSES = {
    "grpo": {"loss_type": "grpo"},
    "dapo": {"loss_type": "dapo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.28},
    "grpo/sequence": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "dapo/delta": {"loss_type": "dapo", "epsilon": 0.05, "epsilon_high": 0.05, "delta": 1.1},
    "dapo/beta": {"loss_type": "dapo", "beta": 0.1, "use_bias_correction_kl": False},
    "dapo/beta/corrected": {"loss_type": "dapo", "beta": 0.1, "use_bias_correction_kl": True},
}
"""Arguments of GRPOConfig beside `SHARED`."""
SHARED = {"epsilon": PEERS["input"]["clip_low"], "epsilon_high": PEERS["input"]["clip_high"], "beta": 0.0}


def values() -> dict[str, dict]:
    """Loss and gradient with respect to `new` of every entry of `LOSSES`."""
    return {name: _loss_and_gradient(SHARED | arguments) for name, arguments in LOSSES.items()}


def _loss_and_gradient(arguments: dict) -> dict:
    given = {key: torch.tensor(PEERS["input"][key], dtype=torch.float64) for key in ("new", "old", "rollout", "mask", "adv_per_seq")}
    new, mask = given["new"].requires_grad_(), given["mask"]
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(folder, max_completion_length=mask.shape[1], **arguments)
    trainer._get_per_token_logps_and_entropies = lambda *args, **kwargs: (new, torch.zeros_like(mask), None)
    ids = torch.zeros(mask.shape, dtype=torch.long)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1] + 1,
        "completion_ids": ids,
        "completion_mask": mask.long(),
        "advantages": given["adv_per_seq"],
        "old_per_token_logps": given["old"],
        "ref_per_token_logps": given["rollout"],
        "num_items_in_batch": mask.sum(),
    }
    loss = trainer._compute_loss(trainer.model, inputs)
    (gradient,) = torch.autograd.grad(loss, new)
    return {"loss": loss.item(), "grad": gradient.tolist()}


def _trainer(folder: str, **arguments):
    """TRL's trainer around a model that is never asked."""
    import datasets
    import tokenizers
    import transformers
    import trl

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    shape = {"vocab_size": 2, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = {"output_dir": folder, "use_cpu": True, "bf16": False, "report_to": [], "per_device_train_batch_size": 4, "num_generations": 4}
    # From a folder, because a reference model is loaded by the policy's name.
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape)).save_pretrained(folder)
    trainer = trl.GRPOTrainer(
        model=transformers.LlamaForCausalLM.from_pretrained(folder),
        processing_class=transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="a", eos_token="b"),
        reward_funcs=lambda completions, **kwargs: [0.0] * len(completions),
        args=trl.GRPOConfig(**config, **arguments),
        train_dataset=datasets.Dataset.from_list([{"prompt": "a"}]),
    )
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    return trainer


if __name__ == "__main__":
    print(json.dumps(values()))
