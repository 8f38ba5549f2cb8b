"""What a policy says of given tokens: log-probabilities and entropy, as training and the mismatch probe compute them."""

from __future__ import annotations

import torch
from torch import Tensor

from scalerl.models._policy import Policy
from scalerl.trainers._rows import MicroBatch


def log_probs(policy: Policy, batch: MicroBatch, *, temperature: float, keeps_entropy: bool = False) -> tuple[Tensor, Tensor]:
    """(M,) log pi of the trainable tokens in nats, with gradient, and (M,) entropy of their distributions, with one if it is kept.

    Both are those of softmax(logits / temperature), the distribution that is sampled from.
    """
    states = policy.hidden(batch.input_ids, use_cache=False).flatten(0, 1).index_select(0, batch.predictors)
    scores_MV = torch.log_softmax(policy.logits(states) / temperature, dim=-1)
    chosen = scores_MV.gather(-1, batch.targets[:, None]).squeeze(-1)
    known_MV = scores_MV if keeps_entropy else scores_MV.detach()
    return chosen, -(known_MV.exp() * known_MV).sum(-1)
