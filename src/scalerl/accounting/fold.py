"""Folds: records that take in a run's events one by one, at flat memory."""

from __future__ import annotations

from typing import Self

import msgspec


class Fold(msgspec.Struct):
    """Base of the folds: subclasses declare their state as fields and define `update(entry)`."""

    def state(self) -> bytes:
        """The state as JSON, for a checkpoint."""
        return msgspec.json.encode(self)

    @classmethod
    def restored(cls, state: bytes) -> Self:
        """The fold that `state` was taken of."""
        return msgspec.json.decode(state, type=cls)
