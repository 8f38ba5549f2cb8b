"""PPO-off-policy-k: generate k batches with frozen weights, then take k steps on them (the older scheme)."""

from scalerl.pipeline.schedules import Schedule


class PpoOffPolicy(Schedule):
    """Alternating phases; it has nothing to set."""
