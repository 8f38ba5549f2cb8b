"""PPO-off-policy-k: generate k batches with frozen weights, then take k steps on them (the older scheme)."""

from typing import ClassVar

from scalerl.pipeline.schedules import Schedule


class PpoOffPolicy(Schedule):
    """Alternating phases; it has nothing to set."""

    least_k: ClassVar[int] = 1
    """It generates k batches at a time."""

    def round_batches(self, k: int) -> int | None:
        """k: the last batch of a round is k - 1 versions old when it is trained on."""
        return k
