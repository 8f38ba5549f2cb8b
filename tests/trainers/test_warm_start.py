"""The warm start: it teaches, it repeats, it is booked."""

import numpy as np
import pytest
import torch
from tokenizers.processors import TemplateProcessing

from scalerl.core.errors import DataError, UsageError
from scalerl.core.random import stream_key, uniform
from scalerl.records.cost import Activity
from scalerl.runs.training import tokenized
from scalerl.tasks import Noise, Split
from scalerl.trainers.warm_starts.demonstrations import Demonstrations
from tests.trainers.tiny import Counting, Speechless, tiny_policy

SHORT = Demonstrations(steps=3, messy_steps=2, batch=8, learning_rate=1e-2)


def trained(meter, *, seed=0, settings=SHORT, task=None, between=lambda: None):
    policy = tiny_policy()
    settings.train(policy, task or Counting(), seed=seed, meter=meter, between=between)
    return policy


def pass_rate(policy):
    """Share of the training examples whose most likely completion is the answer and the end token."""
    examples = Counting().examples(Split.TRAIN)
    passed = 0
    for example in examples:
        prompt = policy.tokenizer(example.text)["input_ids"]
        expected = [*policy.tokenizer(example.answer)["input_ids"], policy.tokenizer.eos_token_id]
        with torch.no_grad():
            logits = policy.module(input_ids=torch.tensor([[*prompt, *expected]])).logits[0, len(prompt) - 1 : -1]
        passed += logits.argmax(-1).tolist() == expected
    return passed / len(examples)


def test_it_learns_what_is_demonstrated(meter):
    settings = Demonstrations(steps=150, messy_steps=0, batch=32, learning_rate=1e-2)
    assert pass_rate(tiny_policy()) < 0.1
    assert pass_rate(trained(meter, settings=settings)) > 0.9


def test_messy_demonstrations_come_afterwards(meter):
    settings = Demonstrations(steps=150, messy_steps=50, batch=32, learning_rate=1e-2, messy_learning_rate=1e-2, direct_share=1.0)
    policy = trained(meter, settings=settings)
    prompt = torch.tensor([policy.tokenizer("12:")["input_ids"]])
    with torch.no_grad():
        assert policy.tokenizer.decode(policy.module(input_ids=prompt).logits[0, -1].argmax()) == "9"


def test_a_seed_decides_every_weight_and_nothing_else_does(meter):
    first = trained(meter, seed=1).tensors()
    state = torch.random.get_rng_state()
    again = trained(meter, seed=1).tensors()
    assert torch.random.get_rng_state().equal(state)
    assert all(tensor.equal(again[name]) for name, tensor in first.items())
    other = trained(meter, seed=2).tensors()
    assert not all(tensor.equal(other[name]) for name, tensor in first.items())


def test_draws_go_by_counters_however_many_a_demonstration_takes(meter):
    class Greedy(Counting):
        def demonstration(self, example, *, noise, draw):
            drawn.append([draw() for _ in range(40)])
            return example.answer

    drawn = []
    trained(meter, settings=Demonstrations(steps=2, messy_steps=0, batch=3), task=Greedy(), seed=5)
    expected = uniform(stream_key(5, "demonstrations", "full"), np.arange(6)[:, None], np.arange(41))
    assert drawn == expected[:, 1:].tolist(), "the first draw of each chooses the example"


def test_both_kinds_of_noise_reach_the_task(meter):
    class Listening(Counting):
        def demonstration(self, example, *, noise, draw):
            heard.append(noise)
            return example.answer

    heard = []
    noisy = Demonstrations(steps=1, messy_steps=1, batch=2, error_rate=0.2, messy_error_rate=0.3, direct_share=0.5)
    trained(meter, settings=noisy, task=Listening())
    assert heard == [Noise(0.2, 0.0)] * 2 + [Noise(0.3, 0.5)] * 2


def test_prompts_are_those_that_rl_samples_from_special_tokens_included(meter, tmp_path):
    policy = tiny_policy()
    policy.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<pad> $0", special_tokens=[("<pad>", policy.pad_id)])
    policy.tokenizer.save_pretrained(tmp_path)
    read = []
    policy.module.get_input_embeddings().register_forward_hook(lambda _, inputs, __: read.extend(inputs[0].tolist()))
    settings = Demonstrations(steps=2, messy_steps=0, batch=16, error_rate=0.0)
    settings.train(policy, Counting(), seed=0, meter=meter, between=lambda: None)
    prompts = tokenized(Counting().examples(Split.TRAIN), task="tiny", tokenizer=tmp_path / "tokenizer.json")
    expected = [[*prompt.token_ids, *policy.encode(prompt.answer, where="test")] for prompt in prompts]
    assert all(ids[0] == policy.pad_id and ids.count(policy.pad_id) == 1 for ids in expected), "it stands before prompts only"
    assert len(read) == 32
    assert all(ids in expected for ids in read)


def test_its_cost_is_booked_as_warm_start(meter):
    policy = tiny_policy()
    calls = []
    Demonstrations(steps=1, messy_steps=1, batch=4, direct_share=0.0).train(
        policy, Counting(), seed=0, meter=meter, between=lambda: calls.append(1)
    )
    (cost,) = meter.collect()
    # Two steps of four rows: three prompt tokens, two digits and the end; the end is predicted, never read.
    assert (cost.activity, cost.tokens, len(calls)) == (Activity.WARM_START, 2 * 4 * 3, 2)
    assert cost.flops == 3 * policy.flops.forward(num_tokens=2 * 4 * 5, num_pairs=2 * 4 * 15, num_logits=2 * 4 * 3)
    assert cost.overhead_flops == 0.0


def test_a_task_without_demonstrations_is_refused(meter):
    with pytest.raises(UsageError, match=r"the task 'tiny' cannot write demonstrations; leave the warm start out"):
        trained(meter, task=Speechless())


def test_a_demonstration_that_the_tokenizer_cannot_write_is_told(meter):
    class Foreign(Counting):
        def demonstration(self, example, *, noise, draw):
            return "eleven"

    with pytest.raises(DataError, match=r"cannot encode 'eleven'"):
        trained(meter, task=Foreign())
