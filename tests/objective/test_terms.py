"""Terms: value and gradient against the equations, what the estimators estimate, and what must never leak or overflow."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from scalerl.core.errors import UsageError
from scalerl.objective.ratios import LARGEST_LOG_RATIO
from scalerl.objective.terms import Term
from scalerl.objective.terms.entropy import Entropy
from scalerl.objective.terms.kl import Kl
from tests.objective.oracle import TERMS, central_differences, label

PEERS = json.loads((Path(__file__).parent / "peers.json").read_text())
ALL = [pytest.param(term, id=label(term)) for term in TERMS]


def drawn(seed: int, *, rows: int = 5, columns: int = 4):
    """log pi, log pi_ref, entropies and mask; the first row is empty."""
    draw = np.random.default_rng(seed)
    new = -draw.exponential(1.0, (rows, columns))
    mask = draw.random((rows, columns)) < 0.7
    mask[0] = False
    return new, new + draw.normal(0.0, 0.5, new.shape), draw.exponential(1.0, new.shape), mask


def values_and_gradients(term: Term, new, reference, entropy, mask, *, dtype=torch.float64):
    """What the term adds, (N, T), and its gradients to log pi and to the entropy."""
    new, entropy = (torch.tensor(array, dtype=dtype, requires_grad=True) for array in (new, entropy))
    reference = torch.tensor(reference, dtype=dtype)
    values = term.objective(
        new, reference + 1.0, reference if term.needs_reference else None, entropy if term.needs_entropy else None, torch.tensor(mask)
    )
    gradients = torch.autograd.grad(values.sum(), (new, entropy), allow_unused=True)
    return values.detach().numpy(), *(np.zeros(mask.shape) if gradient is None else gradient.numpy() for gradient in gradients)


def expected_values(term: Term, new, reference, entropy, mask) -> np.ndarray:
    return np.where(mask, np.vectorize(TERMS[term])(new, reference, entropy), 0.0)


def test_every_term_has_an_oracle():
    assert {term.name() for term in TERMS} >= set(Term.family.names())


@pytest.mark.parametrize("term", ALL)
@pytest.mark.parametrize("seed", range(3))
def test_value_and_gradient_follow_from_the_equation(term, seed):
    new, reference, entropy, mask = drawn(seed)
    values, of_log_probs, of_entropy = values_and_gradients(term, new, reference, entropy, mask)
    np.testing.assert_allclose(values, expected_values(term, new, reference, entropy, mask), rtol=1e-12, atol=1e-15)
    by_log_probs = central_differences(lambda moved: float(expected_values(term, moved, reference, entropy, mask).sum()), new)
    by_entropy = central_differences(lambda moved: float(expected_values(term, new, reference, moved, mask).sum()), entropy)
    np.testing.assert_allclose(of_log_probs, by_log_probs, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(of_entropy, by_entropy, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("term", ALL)
@pytest.mark.parametrize("rubbish", [math.nan, math.inf, -math.inf])
def test_masked_tokens_add_nothing_and_get_no_gradient(term, rubbish):
    new, reference, entropy, mask = drawn(0)
    clean = values_and_gradients(term, new, reference, entropy, mask)
    dirty = values_and_gradients(term, *(np.where(mask, array, rubbish) for array in (new, reference, entropy)), mask)
    for one, other in zip(clean, dirty, strict=True):
        np.testing.assert_array_equal(one, other)
        assert (other[~mask] == 0.0).all()


@pytest.mark.parametrize("term", ALL)
def test_half_precision_is_widened_before_the_difference(term):
    new, reference, entropy, mask = drawn(1)
    narrow = [torch.tensor(array, dtype=torch.bfloat16) for array in (new, reference, entropy)]
    one, other = (term.objective(inputs[0], inputs[1], *inputs[1:], torch.tensor(mask)) for inputs in (narrow, [t.float() for t in narrow]))
    assert one.dtype == torch.float32
    assert torch.equal(one, other)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_a_policy_at_its_reference_pays_nothing(estimator):
    new, _, entropy, mask = drawn(2)
    values, gradient, _ = values_and_gradients(Kl(coefficient=1.0, estimator=estimator), new, new, entropy, mask)
    assert (values == 0.0).all()
    assert (gradient == (-1.0 if estimator == "k1" else 0.0) * mask).all()


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_estimators_expectations_are_what_is_said_of_them(estimator):
    """Summed over a vocabulary of 4 with pi's own probabilities, as on-policy samples would be on average."""
    logits = torch.tensor([0.3, -1.0, 0.8, 0.1], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.1, 0.5, -0.4, 0.0], dtype=torch.float64).log_softmax(-1)
    new = logits.log_softmax(-1)
    pi = new.exp()
    term, everywhere = Kl(coefficient=1.0, estimator=estimator), torch.ones(1, 4, dtype=torch.bool)
    estimates = -term.objective(new[None], new[None], reference[None], None, everywhere)[0]

    def gradient(value: torch.Tensor) -> list[float]:
        return torch.autograd.grad(value, logits, retain_graph=True)[0].tolist()

    reverse, forward = (pi * (new - reference)).sum(), (reference.exp() * (reference - new)).sum()
    mean = (pi * estimates).sum().item()
    # Differentiating an estimate leaves out that the samples depend on pi.
    of_mean = gradient((pi.detach() * estimates).sum())
    if estimator == "k2":
        assert mean != pytest.approx(reverse.item(), rel=0.01)
    else:
        assert mean == pytest.approx(reverse.item(), rel=1e-12)
    expected = {"k1": [0.0] * 4, "k2": gradient(reverse), "k3": gradient(forward)}[estimator]
    assert of_mean == pytest.approx(expected, abs=1e-12)


def test_k3_keeps_its_digits_near_the_reference():
    """At a distance of 1e-4 exp(d) - d - 1 in fp32 is off by a factor; d^2 / 2 is 5e-9."""
    new = torch.tensor([[-1e-4]], dtype=torch.float32)
    term = Kl(coefficient=1.0)
    value = term.objective(new, new, torch.zeros(1, 1), None, torch.ones(1, 1, dtype=torch.bool)).item()
    assert value == pytest.approx(-5.0e-9, rel=1e-2)


def test_a_token_that_the_reference_likes_far_more_is_finite_and_has_no_gradient():
    """exp(100) in fp32 is infinite; only k3 takes it."""
    arguments = (np.array([[-101.0]]), np.array([[-1.0]]), np.ones((1, 1)), np.ones((1, 1), np.bool_))
    value, gradient, _ = values_and_gradients(Kl(coefficient=1.0), *arguments, dtype=torch.float32)
    assert value.item() == pytest.approx(-(math.exp(LARGEST_LOG_RATIO) - LARGEST_LOG_RATIO - 1.0), rel=1e-6)
    assert gradient.item() == 0.0


def test_the_terms_say_what_they_need():
    needs = {name: (term.needs_reference, term.needs_entropy) for name, term in Term.family.classes().items()}
    assert needs == {"entropy": (False, True), "kl": (True, False)}
    assert Kl(coefficient=1.0).estimator == "k3"


@pytest.mark.parametrize("selection", [{"type": "kl"}, {"type": "kl", "coefficient": 0.0}, {"type": "entropy", "coefficient": -1.0}])
def test_a_term_that_weighs_nothing_is_refused(selection):
    """Without it is an empty list of terms, which computes no reference."""
    with pytest.raises(UsageError, match="its coefficient cannot be used"):
        Term.family.select(selection)


@pytest.mark.parametrize(("estimator", "name"), [("k1", "verl kl"), ("k2", "verl mse"), ("k3", "verl low_var_kl")])
def test_verls_own_estimators_give_the_same(estimator, name):
    """Theirs is a penalty of `new` against `old`, ours is added to an objective: the sign is turned."""
    new, reference = (np.array(PEERS["input"][key]) for key in ("new", "old"))
    values, _, _ = values_and_gradients(Kl(coefficient=0.5, estimator=estimator), new, reference, new, np.ones(new.shape, np.bool_))
    np.testing.assert_allclose(-2.0 * values, PEERS["kl"][name], rtol=1e-9, atol=1e-12)


def test_an_entropy_bonus_is_its_coefficient_times_the_entropy():
    values, _, gradient = values_and_gradients(
        Entropy(coefficient=0.01), *(np.full((1, 1), x) for x in (-1.0, -1.0, 2.0)), np.ones((1, 1), bool)
    )
    assert (values.item(), gradient.item()) == pytest.approx((0.02, 0.01))
