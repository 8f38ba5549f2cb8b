"""Deterministic rewards for the tests of live use: the planted law, with a wobble that no draw decides."""

import math


def reward(compute, *, A, C_mid=20.0, B=1.5, R0=0.1, noise=0.004):
    """R0 + (A - R0) / (1 + (C_mid / C)^B), arXiv 2510.13786 eq. 1, and a wobble of that noise."""
    mean = R0 + (A - R0) / (1.0 + (C_mid / compute) ** B) if compute else R0
    return mean + noise * math.sqrt(2.0) * math.sin(12.9898 * compute + 78.233 * A)
