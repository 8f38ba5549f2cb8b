"""Fresh models and their tokenizers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from scalerl.core.errors import UsageError
from scalerl.models._fresh import byte_tokenizer, character_tokenizer, fast_tokenizer
from scalerl.models.config import Config

ALPHABET = "0123456789+-*:=. \n"


@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
def test_weights_come_from_the_seed_alone(architecture):
    build = Config(architecture=architecture, dtype="float32").build
    torch.manual_seed(5)
    first = build(alphabet="01", seed=1).tensors()
    state = torch.random.get_rng_state()
    again, other = build(alphabet="01", seed=1).tensors(), build(alphabet="01", seed=2).tensors()
    assert torch.equal(state, torch.random.get_rng_state()), "the global stream of random numbers is left alone"
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])


@given(st.text(ALPHABET))
def test_characters_are_tokens_and_come_back(text):
    tokenizer = _CHARACTERS
    ids = tokenizer.encode(text)
    assert ids == [2 + ALPHABET.index(character) for character in text]
    assert tokenizer.decode([*ids, tokenizer.eos_token_id, tokenizer.pad_token_id], skip_special_tokens=True) == text


@given(st.text())
def test_bytes_are_tokens_and_come_back(text):
    ids = _BYTES.encode(text)
    assert len(ids) == len(text.encode())
    assert _BYTES.decode(ids) == text


_CHARACTERS, _BYTES = fast_tokenizer(character_tokenizer(ALPHABET)), fast_tokenizer(byte_tokenizer())


def test_heads_that_cannot_be_turned_in_pairs_are_refused():
    with pytest.raises(ValidationError, match="a head of 6 / 2 channels is odd"):
        Config(hidden_size=6, num_heads=2)


@pytest.mark.parametrize("alphabet", ["", "011"])
def test_an_alphabet_names_every_character_once(alphabet):
    with pytest.raises(UsageError, match="name every character once"):
        character_tokenizer(alphabet)
