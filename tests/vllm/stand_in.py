"""Stands in for the process of vLLM: samples by rule, so that a token depends on its place alone, and dies when it is told to."""

from scalerl.core.errors import LostRoleError
from scalerl.engines._vllm_calls import Token

FIRST_ID, NUM_IDS = 2, 16


def token_at(place):
    """The token at a place of prompt and completion, never one that stops."""
    return FIRST_ID + place % NUM_IDS


class World:
    """What all processes of a test have in common."""

    def __init__(self, *, calls_to_start=0, room=1000, deaths=()):
        self.calls_to_start = calls_to_start
        self.room = room
        """Pieces that a step samples for; the others wait."""
        self.deaths = list(deaths)
        """Calls, counted over all processes, that end one."""
        self.calls = []
        self.processes = []
        self.steps = []
        """(name, salt) of the pieces of each step."""

    def start(self, start):
        self.processes.append(StandIn(self, start))
        return self.processes[-1]


class StandIn:
    """`VllmProcess`, without a process."""

    def __init__(self, world, start):
        self.world = world
        self.has_started = False
        self.pieces = {}
        self.places = {}
        self.cached = set()
        self.aborted = []

    def starts(self, *, within_s):
        self.world.calls_to_start -= 1
        self.has_started = self.world.calls_to_start < 0
        return self.has_started

    def call(self, method, *arguments):
        assert self.has_started, "nothing is called before it has started"
        self.world.calls.append(method)
        if len(self.world.calls) in self.world.deaths:
            raise LostRoleError("vLLM died (killed by SIGKILL)", where="engine")
        return getattr(self, method)(*arguments)

    def load(self):
        pass

    def forget_keys(self):
        self.cached = set()

    def step(self, pieces, aborted):
        for name in aborted:
            del self.pieces[name]
        self.aborted += aborted
        self.pieces |= {piece.name: piece for piece in pieces}
        running = list(self.pieces.values())[: self.world.room]
        self.world.steps.append([(piece.name, piece.salt) for piece in running])
        return [self.token(piece) for piece in running]

    def token(self, piece):
        place = self.places.get(piece.name, 0) or len(piece.token_ids)
        num_computed = 1 if piece.name in self.cached else place
        self.cached.add(piece.name)
        self.places[piece.name] = place + 1
        is_last = place + 1 - len(piece.token_ids) == piece.max_tokens
        if is_last:
            del self.pieces[piece.name]
        return Token(piece.name, token_at(place), log_prob=-float(place), num_computed=num_computed, is_last=is_last)
