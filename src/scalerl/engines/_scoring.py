"""Scoring the probe: known tokens through the passes that sampling makes, so that trainer and generator can be compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from scalerl.accounting.meter import Meter
from scalerl.engines import TokenIds
from scalerl.engines._body import CachedBody
from scalerl.models._policy import Policy
from scalerl.records.cost import Activity

_PROBE = "probe"
"""What the books call it, on either side of a push."""


@torch.no_grad()
def score(policy: Policy, probe: Sequence[tuple[TokenIds, TokenIds]], *, temperature: float, meter: Meter) -> NDArray[np.float32]:
    """Log-probabilities in nats of all tokens of the second parts, one after the other.

    The first parts are prefilled, the second ones follow through the cache in one pass, all but their last token. Booked
    as part of the push.
    """
    if not probe:
        return np.zeros(0, np.float32)
    with meter.doing(Activity.PUSH, _PROBE):
        scored = _scored(policy, probe, temperature=temperature, meter=meter)
    meter.count(Activity.PUSH, tokens=len(scored), detail=_PROBE)
    return scored


def _scored(policy: Policy, probe: Sequence[tuple[TokenIds, TokenIds]], *, temperature: float, meter: Meter) -> NDArray[np.float32]:
    everyone = np.arange(len(probe))
    prompts = [prompt for prompt, _ in probe]
    num_tokens = np.array([len(completion) for _, completion in probe])
    ids = np.full((len(probe), num_tokens.max()), policy.pad_id)
    is_token = np.arange(ids.shape[1]) < num_tokens[:, None]
    ids[is_token] = np.concatenate([completion for _, completion in probe])

    body = CachedBody(policy, num_rows=len(probe), meter=meter, detail=_PROBE)
    hidden = body.whole(prompts, rows=everyone, sequence_of_row=everyone, activity=Activity.PUSH)[:, None]
    if ids.shape[1] > 1:
        starts = np.array([len(prompt) for prompt in prompts])
        later = body.extend(everyone, ids[:, :-1], starts=starts, num_new=num_tokens - 1, activity=Activity.PUSH)
        hidden = torch.cat((hidden, later), dim=1)
    logits = body.logits(hidden[torch.from_numpy(is_token).to(hidden.device)], activity=Activity.PUSH)
    tokens = torch.from_numpy(ids[is_token]).to(hidden.device)
    log_probs = torch.log_softmax(logits / temperature, dim=-1).gather(-1, tokens[:, None])[:, 0]
    scored: NDArray[np.float32] = log_probs.cpu().numpy()
    return scored
