"""What KV policies cost: closed forms against sums, fits against planted rates, drains against slots played by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalerl.accounting.kv_costs import Measured, Passes, Rates, Work, Workload, decode_of_life, drain_idle_share, reprefill_of_life

LENGTHS = {40: 3, 80: 5, 200: 2}


@given(length=st.integers(1, 60), prompt=st.integers(1, 40), interval=st.integers(1, 30))
def test_the_life_of_a_completion_is_the_mean_over_all_phases_of_pushes(length, prompt, interval):
    """A push after t tokens, t = phase, phase + K, ...: before it ends, a row holds prompt + t - 1 tokens."""
    contexts = [prompt + t - 1 for phase in range(interval) for t in range(1, length) if t % interval == phase]
    work = reprefill_of_life(length, prompt_tokens=prompt, interval_tokens=interval)
    assert work.tokens * interval == pytest.approx(sum(contexts))
    assert work.pairs * interval == pytest.approx(sum(n * (n + 1) / 2 for n in contexts))
    decoded = decode_of_life(length, prompt_tokens=prompt)
    assert decoded == Work(length, sum(prompt + t for t in range(1, length + 1)))


def test_prompts_that_a_group_shares_count_once_for_all_of_it():
    """Three completions of 5 after one prompt of 10, a push after every token: the prompt is computed 4 times in all."""
    one = reprefill_of_life(5, prompt_tokens=10, interval_tokens=1, prompt_share=1 / 3)
    assert 3 * one.tokens == pytest.approx(4 * 10 + 3 * (0 + 1 + 2 + 3))
    assert 3 * one.pairs == pytest.approx(4 * 55 + 3 * (11 + (11 + 12) + (11 + 12 + 13)))


def test_a4_the_toy_numbers():
    """A prompt of 10 with 3 generated tokens: 12 are computed anew; a completion of 4 meets a push after 1, 2 or 3 of them."""
    assert reprefill_of_life(4, prompt_tokens=10, interval_tokens=1) == Work(10 + 11 + 12, 55 + 66 + 78)


def test_tokens_grow_with_the_square_and_pairs_with_the_cube_of_the_length():
    far, farther = (reprefill_of_life(n, prompt_tokens=10, interval_tokens=50) for n in (1e5, 2e5))
    assert farther.tokens / far.tokens == pytest.approx(4.0, rel=1e-3)
    assert farther.pairs / far.pairs == pytest.approx(8.0, rel=1e-3)
    assert reprefill_of_life(1e5, prompt_tokens=10, interval_tokens=100).tokens == far.tokens / 2


def fitted(works, seconds):
    passes = Passes()
    for work, taken in zip(works, seconds, strict=True):
        passes.add(work, seconds=taken)
    return passes.rates()


def test_the_fit_finds_planted_rates_and_none_is_negative():
    works = [Work(n, n * (n + 1) / 2) for n in (10, 40, 90, 400)]
    planted = Rates(1e-4, 1e-7)
    rates = fitted(works, [planted.seconds(work) for work in works])
    assert (rates.s_per_token, rates.s_per_pair) == (pytest.approx(1e-4), pytest.approx(1e-7))
    saturating = fitted(works, [0.01 * work.tokens**0.5 for work in works])
    assert saturating.s_per_pair == 0.0
    assert saturating.s_per_token == pytest.approx(sum(0.01 * w.tokens**0.5 for w in works) / sum(w.tokens for w in works))
    only_pairs = fitted(works, [1e-6 * work.pairs - 1e-6 * work.tokens for work in works])
    assert only_pairs.s_per_token == 0.0
    assert only_pairs.s_per_pair > 0.0
    assert fitted([Work(10.0, 55.0)] * 3, [1.0, 2.0, 3.0]) == Rates(0.2, 0.0), "passes of one size tell no pairs apart"
    assert Passes().rates() is None


def played_by_hand(lengths, *, rows, interval, cycles):
    """The share of slot-steps without a completion, slots played one by one."""
    dice = np.random.default_rng(0)
    known = np.repeat(list(lengths), list(lengths.values()))
    idle = steps = 0
    for _ in range(cycles):
        left = []
        for _ in range(rows):
            end = 0
            while end <= interval:
                end += dice.choice(known)
            left.append(end - interval)
        idle += sum(max(left) - one for one in left)
        steps += rows * (interval + max(left))
    return idle / steps


@pytest.mark.parametrize("interval", [20, 75, 400])
def test_idle_slots_of_a_drain_are_those_of_slots_played_by_hand(interval):
    load = Workload(LENGTHS, prompt_tokens=10, interval_tokens=interval, num_rows=8)
    by_hand = played_by_hand(LENGTHS, rows=8, interval=interval, cycles=1500)
    assert drain_idle_share(load) == pytest.approx(by_hand, abs=0.02)


def test_a_drain_of_equal_completions_that_began_together_leaves_nothing_idle():
    assert drain_idle_share(Workload({50: 1}, 10, 20, 8)) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("lengths", [{50: 1}, {40: 1, 80: 1}, LENGTHS])
def test_a_drain_after_ages_is_that_of_an_earlier_one_at_the_same_phase(lengths):
    """Pushes that hardly ever meet a completion take no longer to forecast; slots of equal completions still end together."""
    longest = max(lengths)
    loads = [Workload(lengths, 10, interval, 8) for interval in (longest * 1e7, longest * 60.0)]
    far, near = (drain_idle_share(load) * load.interval_tokens for load in loads)
    assert far == pytest.approx(near, rel=0.05, abs=1e-6)


MEASURED = Measured(Workload(LENGTHS, 10, 20, 8), Work(150.0, 9_000.0), Rates(1e-4, 1e-7), s_per_token=1e-3)


def test_a_forecast_at_what_was_measured_is_what_was_measured():
    now = MEASURED.at()
    mean = (40 * 3 + 80 * 5 + 200 * 2) / 10
    anew_s = 150 * 1e-4 + 9_000 * 1e-7
    assert now.mean_tokens == mean
    assert now.reprefill_share == pytest.approx(anew_s / (anew_s + mean * 1e-3))
    assert now.reprefill_tokens == pytest.approx(150 / mean)
    assert (now.num_pushes, now.least_k) == (mean / 20, 10)


def test_longer_completions_make_reprefill_dearer_and_rarer_pushes_cheaper():
    shares = [MEASURED.at(length=length).reprefill_share for length in (1, 2, 4, 8, 16)]
    assert shares == sorted(shares)
    assert MEASURED.at(length=16).reprefill_tokens / MEASURED.at(length=8).reprefill_tokens == pytest.approx(2.0, rel=0.05)
    halved, now = MEASURED.at(interval=2), MEASURED.at()
    ratio = [one.reprefill_share / (1 - one.reprefill_share) for one in (now, halved)]
    assert ratio[0] == pytest.approx(2.0 * ratio[1])
    assert halved.least_k == 5


def test_without_rates_there_is_no_share_but_everything_else():
    blind = Measured(MEASURED.load, MEASURED.needed, None, 1e-3).at(length=2)
    assert blind.reprefill_share is None
    assert blind.drain_idle_share > 0.0
