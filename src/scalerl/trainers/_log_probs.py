"""What a policy says of given tokens: log-probabilities and entropy, as training and the mismatch probe compute them."""

from __future__ import annotations

import torch
from torch import Tensor

from scalerl.models._policy import Policy


def log_probs(policy: Policy, states: Tensor, targets: Tensor, *, temperature: float, keeps_entropy: bool = False) -> tuple[Tensor, Tensor]:
    """(M,) log pi in nats of M `targets`, with gradient, and (M,) entropy of their distributions, with one if it is kept.

    Both are those of softmax(logits / temperature), the distribution that is sampled from, after (M, H) `states`.
    """
    logits_MV = policy.logits(states)
    scores_MV = torch.log_softmax(logits_MV if temperature == 1.0 else logits_MV / temperature, dim=-1)
    chosen = scores_MV.gather(-1, targets[:, None]).squeeze(-1)
    known_MV = scores_MV if keeps_entropy else scores_MV.detach()
    return chosen, -(known_MV.exp() * known_MV).sum(-1)
