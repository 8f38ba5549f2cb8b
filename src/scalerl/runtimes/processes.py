"""A process per role on one machine, weights through shared memory."""

from pydantic import Field

from scalerl.runtimes import Runtime


class Processes(Runtime):
    """Generator and trainer overlap."""

    threads: int = Field(default=1, gt=0)
    """Threads of each process; on shared CPU cores one is the fastest."""
