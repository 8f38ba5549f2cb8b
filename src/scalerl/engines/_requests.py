"""Requests that an engine has no room for are refused when they come, not when their turn has come."""

from __future__ import annotations

from collections.abc import Sequence

from scalerl.core.errors import UsageError
from scalerl.engines._flight import Decoding
from scalerl.records.roles import Request


def check_requests(requests: Sequence[Request], decoding: Decoding, *, max_tokens: int | None) -> None:
    """Refuse what does not fit into the slots, or into sequences of `max_tokens`; None where those may have any length.

    Raises:
        UsageError: a group has more completions than there are slots, or a prompt leaves too little for its completions.
    """
    for request in requests:
        prompt_tokens = len(request.prompt.token_ids)
        assert prompt_tokens, "a prompt has tokens"
        if max_tokens is not None and prompt_tokens + decoding.completion_tokens > max_tokens:
            raise UsageError(
                f"a prompt of {prompt_tokens} tokens and a completion of {decoding.completion_tokens} exceed the {max_tokens} of the model",
                where="length",
                remedy="lower length.completion_tokens or length.prompt_tokens, or choose a model of longer sequences",
            )
        if request.num_completions > decoding.slots:
            raise UsageError(
                f"{decoding.slots} slots cannot hold a group of {request.num_completions} completions",
                where="engine.slots",
                remedy="raise it to batch.group at least",
            )
