"""Dr. GRPO: GRPO done right (Understanding R1-Zero-Like Training, arXiv 2503.20783, section 3.2).

    J_it = min(rho_it A_i, clip(rho_it, 1 - clip, 1 + clip) A_i)

Token by token it is GRPO's objective. What the paper takes out are two biases of what stands around it, and both are
ingredients of their own here: the division by the group's std (`advantage.scale = "none"`), which favours questions that
are too easy or too hard, and by the completion's own length (`aggregation = {type = "constant", tokens = ...}`), which
lets long wrong answers off lightly.
"""

from scalerl.objective.losses.grpo import Grpo


class DrGrpo(Grpo):
    """GRPO's token objective under the name that goes with unscaled advantages and the constant aggregation."""
