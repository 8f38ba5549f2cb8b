"""Foundations that know nothing of reinforcement learning: units, errors, clock, randomness, events, component families."""
