"""What is in flight, and the process of vLLM that goes on with it: who is new there, who is given up, and what a death costs.

Every step names all work there is. What vLLM does not know yet is sent to it as a piece, and a piece that no work stands for
any more is given up; so completions may be cancelled, interrupted and sent again without a word to vLLM. If its process dies,
another one gets every piece anew, from the tokens that there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from scalerl.accounting.meter import Meter
from scalerl.core.errors import LostRoleError
from scalerl.engines._vllm_calls import Piece, Token
from scalerl.engines._vllm_process import VllmProcess
from scalerl.engines._vllm_start import Start
from scalerl.records.cost import Activity

BEAT_S = 0.5
"""Longest wait for vLLM to start before whoever called may listen to others."""
START = "vLLM"
"""What the books call waiting for it."""


@dataclass(slots=True, eq=False, kw_only=True)
class Work(ABC):
    """Something that vLLM samples tokens for."""

    name: str = ""
    """Of its piece; empty while vLLM does not know it."""
    waits: bool = True
    """Whether nothing of the piece is computed yet."""

    @abstractmethod
    def piece(self, *, name: str, salt: str) -> Piece:
        """What is left to sample."""

    def send_again(self) -> None:
        """Have the rest sent as another piece."""
        self.name, self.waits = "", True


class Line:
    """The process of vLLM, and another one if it dies."""

    def __init__(self, start: Start, *, restarts: int, meter: Meter) -> None:
        self._start = start
        self._restarts = restarts
        self._meter = meter
        self._process = VllmProcess(start)
        self._sent: dict[str, Work] = {}
        self._names = count()
        self._num_loads = 0

    @property
    def pid(self) -> int:
        """Of the process that there is now."""
        return self._process.pid

    def has_started(self) -> bool:
        """Whether vLLM can be called; waits for half a second at most.

        Raises:
            ScalerlError: it cannot be started, and why.
            LostRoleError: it has died more often than it is started again.
        """
        if not self._process.has_started:
            with self._meter.doing(Activity.LOAD, START):
                try:
                    return self._process.starts(within_s=BEAT_S)
                except LostRoleError as error:
                    self._start_again(error)
        return self._process.has_started

    def step(self, work: Sequence[Work]) -> list[tuple[Work, Token]]:
        """One step of vLLM for all the `work` there is, as far as it has room; nothing while it starts.

        Raises:
            ScalerlError: vLLM failed, and why.
            LostRoleError: it has died more often than it is started again.
        """
        if not self.has_started():
            return []
        wanted = {one.name for one in work}
        given_up = [name for name in self._sent if name not in wanted]
        for name in given_up:
            del self._sent[name]
        sampled = []
        for token in self._call("step", [self._new_piece(one) for one in work if not one.name], given_up) or []:
            one = self._sent.pop(token.name) if token.is_last else self._sent[token.name]
            one.waits = False
            sampled.append((one, token))
        return sampled

    def load(self) -> None:
        """Have vLLM take the weights that were written: keys of others are not reused for any piece sent from now on.

        What waits is sent again, so that it starts under the new weights as a whole.
        """
        self._call("load")
        self._num_loads += 1
        for one in self._sent.values():
            if one.waits:
                one.send_again()

    def forget_keys(self) -> None:
        """Have the keys of all that is in flight computed anew by the next steps."""
        if self._sent:
            self._call("forget_keys")

    def _new_piece(self, one: Work) -> Piece:
        one.name = str(next(self._names))
        self._sent[one.name] = one
        return one.piece(name=one.name, salt=str(self._num_loads))

    def _call(self, method: str, *arguments: Any) -> Any:
        """What a call returns; None where vLLM died of it: the next process finds the weights, and gets all pieces anew."""
        try:
            return self._process.call(method, *arguments)
        except LostRoleError as error:
            self._start_again(error)
            return None

    def _start_again(self, error: LostRoleError) -> None:
        if not self._restarts:
            raise error
        self._restarts -= 1
        for one in self._sent.values():
            one.send_again()
        self._sent = {}
        self._process = VllmProcess(self._start)
