"""Adapters: what is trained, what others see, what it costs, and that a checkpoint is an ordinary model."""

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from scalerl.core.errors import UsageError
from scalerl.models._policy import Policy
from scalerl.records.cost import Activity
from tests.trainers.tiny import DIGITS, MODEL, even_batch, tiny_policy

peft = pytest.importorskip("peft")
LORA = {"rank": 4, "alpha": 8}


def nothing():
    pass


def with_lora(build, policy, **lora):
    return build(policy, trainer={"lora": LORA | lora}, learning_rate=3e-2)


def test_the_base_stands_and_others_see_it_with_the_adapters_added(build):
    policy = tiny_policy()
    names = list(policy.tensors())
    before = {name: tensor.clone() for name, tensor in policy.tensors().items()}
    learner = with_lora(build, policy)
    assert all(tensor.equal(before[name]) for name, tensor in learner.weights().items()), "B begins at 0"
    learner.train(even_batch(), between=nothing)
    merged = learner.weights()
    assert list(merged) == names
    moved = {name for name, tensor in merged.items() if not tensor.equal(before[name])}
    assert moved == {name for name in names if name.endswith("_proj.weight")}
    assert all(tensor.equal(before[name.replace(".base_layer", "")]) for name, tensor in policy.tensors().items() if "lora_" not in name)


def test_merged_weights_say_what_the_adapted_policy_says(build):
    policy = tiny_policy()
    learner = with_lora(build, policy)
    for seed in range(3):
        learner.train(even_batch(seed), between=nothing)
    other = tiny_policy(seed=1)
    other.load_tensors(learner.weights())
    probe = [((2, 3, 4), (5, 6, 7)), ((8,), (9, 10))]
    assert build(other).score(probe) == pytest.approx(learner.score(probe), abs=1e-5)
    assert np.abs(build(tiny_policy()).score(probe) - learner.score(probe)).max() > 1e-2


def test_a_checkpoint_is_an_ordinary_model_and_goes_on_bit_for_bit(build, tmp_path):
    learner = with_lora(build, tiny_policy())
    for seed in range(3):
        learner.train(even_batch(seed), between=nothing)
    learner.save(tmp_path)
    loaded = Policy.load(tmp_path, head="fp32", dtype="float32")
    assert all(tensor.equal(learner.weights()[name]) for name, tensor in loaded.tensors().items())
    expected = [learner.train(even_batch(seed), between=nothing) for seed in range(3, 5)]
    resumed = with_lora(build, loaded)
    resumed.restore(tmp_path)
    assert [resumed.train(even_batch(seed), between=nothing) for seed in range(3, 5)] == expected


def test_its_flops_are_those_that_torch_counts(build, meter):
    policy = MODEL.model_copy(update={"num_layers": 8}).build(alphabet=DIGITS, seed=0)
    policy.module.set_attn_implementation("eager")
    num_pairs = 3 * 10 + 12 * (36 - 10)
    full = 3.0 * policy.flops.forward(num_tokens=3 * 4 + 12 * 4, num_pairs=num_pairs, num_logits=60)
    # A prompt's scores above the diagonal; those that a completion's mask hides are booked as overhead.
    above = 3 * (16 - 10) * policy.flops.attention_per_pair
    learner = with_lora(build, policy)
    with FlopCounterMode(display=False) as counter:
        learner.train(even_batch(), between=nothing)
    (cost,) = meter.collect()
    # What the first layer's frozen inputs need not is booked all the same: an eighth of a third here.
    booked = cost.flops + cost.overhead_flops + 3 * above
    assert booked == pytest.approx(counter.get_total_flops(), rel=0.03)
    assert booked > counter.get_total_flops() * 0.999
    assert cost.flops != pytest.approx(full, rel=0.05)


def test_targets_that_are_nowhere_are_refused(build):
    with pytest.raises(UsageError, match="no matrix takes these adapters"):
        with_lora(build, tiny_policy(), targets=("nowhere",))
    for target in ("lm_head", "embed_tokens"):
        for targets in ((target,), ("q_proj", target)):
            with pytest.raises(UsageError, match=f"'.*{target}' is no matrix of the layers"):
                with_lora(build, tiny_policy(), targets=targets)
    with pytest.raises(UsageError, match="'nowhere' is no matrix of the layers"):
        with_lora(build, tiny_policy(), targets=("q_proj", "nowhere"))


def test_a_rounded_body_is_refused(build):
    with pytest.raises(UsageError, match=r"adapters need a body of full precision; set model\.dtype to float32"):
        with_lora(build, tiny_policy(dtype="bfloat16"))


def test_merging_for_a_push_is_booked(build, meter):
    learner = with_lora(build, tiny_policy())
    learner.weights()
    (cost,) = meter.collect()
    matrices = [one.numel() for name, one in tiny_policy().tensors().items() if name.endswith("_proj.weight")]
    assert (cost.activity, cost.detail, cost.flops) == (Activity.PUSH, "merging", 2.0 * 4 * sum(matrices))


def test_only_the_targets_move(build):
    policy = tiny_policy()
    before = {name: tensor.clone() for name, tensor in policy.tensors().items()}
    learner = with_lora(build, policy, targets=("q_proj", "v_proj"))
    learner.train(even_batch(), between=nothing)
    moved = {name for name, tensor in learner.weights().items() if not torch.equal(tensor, before[name])}
    assert {name.split(".")[-2] for name in moved} == {"q_proj", "v_proj"}
