"""Policies: the precision of the head, weights that come and go, checkpoints that load by themselves, and those that do not."""

import json
import resource
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, LlamaConfig

from scalerl.core.errors import DataError, ScalerlError
from scalerl.models._policy import Policy, check_memory
from scalerl.models.checkpoint import Checkpoint
from scalerl.models.config import Config

ALPHABET = "0123456789+-*:=."


def fresh(**settings):
    return Config(**{"hidden_size": 32, "intermediate_size": 48} | settings).build(alphabet=ALPHABET, seed=0)


def relative_error(logits, exact):
    return ((logits.double() - exact).abs().max() / exact.abs().max()).item()


def test_logits_of_a_bf16_body_are_an_fp32_matmul_and_not_a_cast():
    policy = fresh(dtype="bfloat16", hidden_size=256, num_heads=4)
    with torch.no_grad():
        hidden = policy.hidden(torch.arange(18)[None])
        assert hidden.dtype == torch.bfloat16
        weight = policy.module.lm_head.weight
        exact = hidden.double() @ weight.double().T
        for _ in range(2):
            assert policy.logits(hidden).dtype == torch.float32
            assert relative_error(policy.logits(hidden), exact) < 1e-5
            policy.cache_head()
        assert relative_error(torch.nn.functional.linear(hidden, weight).float(), exact) > 1e-4, "a cast afterwards comes too late"
        policy.head = "body"
        assert relative_error(policy.logits(hidden), exact) > 1e-4


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_new_weights_renew_the_cached_head(dtype):
    policy = fresh(dtype=dtype)
    policy.cache_head()
    hidden = torch.ones(1, 32, dtype=getattr(torch, dtype))
    with torch.no_grad():
        before = policy.logits(hidden)
        policy.load_tensors({name: 2.0 * tensor for name, tensor in policy.tensors().items()})
        torch.testing.assert_close(policy.logits(hidden), 2.0 * before)


def test_the_head_learns_even_where_a_copy_is_cached():
    policy = fresh(dtype="bfloat16")
    policy.cache_head()
    policy.logits(policy.hidden(torch.ones(1, 3, dtype=torch.int64))).sum().backward()
    assert policy.module.lm_head.weight.grad.abs().sum() > 0


def test_weights_of_another_architecture_are_refused():
    policy = fresh()
    with pytest.raises(DataError, match=r"do not fit the model: model\.layers\.1\..* here and absent there"):
        policy.load_tensors(fresh(num_layers=1).tensors())
    with pytest.raises(DataError, match=r"weight is \(18, 32\) here and \(18, 48\) there"):
        policy.load_tensors(fresh(hidden_size=48).tensors())


LOADER = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
for folder in sys.argv[2:]:
    model, tokenizer = (kind.from_pretrained(folder) for kind in (AutoModelForCausalLM, AutoTokenizer))
    ids = tokenizer(sys.argv[1], return_tensors="pt").input_ids
    stops = [model.generation_config.eos_token_id, tokenizer.eos_token_id]
    logits = model(input_ids=ids).logits.sum().item()
    print(json.dumps([ids[0].tolist(), tokenizer.decode(ids[0]), logits, stops, "scalerl" in sys.modules]))
"""


def test_a_saved_checkpoint_loads_from_its_folder_alone(tmp_path):
    policies = [
        Config(hidden_size=32, intermediate_size=48, dtype="float32", architecture=architecture).build(alphabet=alphabet, seed=1)
        for architecture, alphabet in (("llama", None), ("qwen3", ALPHABET))
    ]
    for index, policy in enumerate(policies):
        policy.save(tmp_path / str(index))
    text, folders = "12+3*4:", [str(tmp_path / str(index)) for index in range(2)]
    # A fresh interpreter that knows transformers only.
    done = subprocess.run([sys.executable, "-c", LOADER, text, *folders], capture_output=True, text=True, check=True, cwd=tmp_path)
    for policy, line in zip(policies, done.stdout.splitlines()[-2:], strict=True):
        ids, decoded, logits, stops, is_ours = json.loads(line)
        assert ids == list(policy.encode(text, where="test"))
        assert (decoded, stops, is_ours) == (text, [policy.tokenizer.eos_token_id] * 2, False)
        with torch.no_grad():
            assert logits == pytest.approx(policy.module(input_ids=torch.tensor([ids])).logits.sum().item(), rel=1e-5)


def test_a_saved_checkpoint_is_the_same_policy(tmp_path):
    policy = fresh(dtype="float32")
    policy.save(tmp_path)
    again = Checkpoint(path=str(tmp_path), dtype="float32").build(alphabet=None, seed=0)
    assert again.stop_ids == policy.stop_ids
    assert again.pad_id == policy.pad_id
    assert again.tensors().keys() == policy.tensors().keys()
    assert all(torch.equal(tensor, policy.tensors()[name]) for name, tensor in again.tensors().items())


def test_a_disk_that_fills_up_with_the_tokenizer_is_an_error_of_the_system(tmp_path):
    # Weights of a few numbers: the tokenizer of bytes, written last, is the larger file.
    policy = Config(hidden_size=2, num_heads=1, num_kv_heads=1, num_layers=1, intermediate_size=2).build(alphabet=None, seed=0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            policy.save(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "model.safetensors").is_file(), "the disk was not full yet when the weights were written"


def test_tied_weights_are_named_once(tmp_path):
    config = LlamaConfig(
        vocab_size=18, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, tie_word_embeddings=True
    )
    policy = Policy(AutoModelForCausalLM.from_config(config), fresh().tokenizer, head="fp32")
    assert "lm_head.weight" not in policy.tensors()
    policy.save(tmp_path)
    again = Policy.load(tmp_path, head="fp32", dtype="float32")
    again.load_tensors({name: tensor + 1.0 for name, tensor in again.tensors().items()})
    assert torch.equal(again.module.lm_head.weight, again.module.model.embed_tokens.weight)


def test_special_tokens_are_added_to_prompts_and_to_nothing_else():
    policy = fresh()
    bos = policy.tokenizer.eos_token
    policy.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{bos} $0", special_tokens=[(bos, policy.tokenizer.eos_token_id)]
    )
    assert policy.encode_prompt("1+2", where="test") == (policy.tokenizer.eos_token_id, 3, 12, 4)
    assert policy.encode("1+2", where="test") == (3, 12, 4)


def test_text_that_has_no_tokens_is_refused_with_its_place():
    policy = fresh()
    assert policy.encode("1+2", where="task") == (3, 12, 4)
    with pytest.raises(DataError, match=r"^task: the model's tokenizer cannot encode '1\+x' \(.*\); use its alphabet"):
        policy.encode("1+x", where="task")
    with pytest.raises(DataError, match=r"^task: '' has no tokens"):
        policy.encode("", where="task")


class TestBadCheckpoints:
    """One clear sentence each."""

    @pytest.fixture
    def folder(self, tmp_path):
        fresh().save(tmp_path)
        return tmp_path

    def refusal(self, path, kind=DataError):
        with pytest.raises(kind) as caught:
            Policy.load(path, head="fp32", dtype="float32")
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def test_a_missing_folder(self, tmp_path):
        assert "there is no such checkpoint folder; give a folder" in self.refusal(tmp_path / "nothing")

    def test_a_name_that_is_neither_here_nor_on_the_hub(self, monkeypatch):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        assert "there is no such folder, and the hub gives none (" in self.refusal("nobody/nothing")

    def test_an_empty_folder(self, tmp_path):
        assert "no causal language model with a tokenizer" in self.refusal(tmp_path)

    def test_a_configuration_without_weights(self, folder):
        (folder / "model.safetensors").unlink()
        assert "no causal language model with a tokenizer" in self.refusal(folder)

    def test_weights_that_were_cut(self, folder):
        weights = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
        assert "no causal language model with a tokenizer" in self.refusal(folder)

    def test_weights_of_another_model(self, folder):
        weights = load_file(folder / "model.safetensors")
        del weights["model.layers.1.mlp.up_proj.weight"]
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        assert "its weights lack model.layers.1.mlp.up_proj.weight" in self.refusal(folder)

    def test_no_tokenizer(self, folder):
        (folder / "tokenizer.json").unlink()
        self.refusal(folder)

    def test_a_tokenizer_that_knows_more_than_the_model(self, folder):
        Config().build(alphabet=None, seed=0).tokenizer.save_pretrained(folder)
        assert "its tokenizer has 258 tokens and its model 18" in self.refusal(folder)

    def test_nothing_that_ends_a_completion(self, folder):
        for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
            settings = json.loads((folder / name).read_text())
            settings.pop("eos_token_id", None), settings.pop("eos_token", None)
            (folder / name).write_text(json.dumps(settings))
        assert "nothing ends its completions" in self.refusal(folder)

    def test_a_model_larger_than_memory(self):
        config = LlamaConfig(hidden_size=4096, num_hidden_layers=2, num_attention_heads=32)
        with pytest.raises(ScalerlError, match=r"here: training its .* parameters takes .* GiB, and 1\.0 GiB are free; choose a smaller"):
            check_memory(config, where="here", free_bytes=2**30)

    def test_a_head_that_is_more_than_a_linear_map(self, folder):
        policy = Policy.load(folder, head="fp32", dtype="float32")
        policy.module.lm_head.register_forward_hook(lambda *call: 2.0 * call[-1])
        with pytest.raises(DataError, match="its head is no linear map of its hidden states"):
            policy._check_head("here")
