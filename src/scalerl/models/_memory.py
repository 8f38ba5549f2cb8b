"""Memory that is free: on the machine, and within the limit of the container that this process may run in."""

from __future__ import annotations

from pathlib import Path

from scalerl.core.errors import ScalerlError

_CGROUPS = (
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
"""Limit, use and what makes it up, in either version of Linux's control groups; a container sees its own."""


def available_bytes(*, root: Path = Path("/")) -> int | None:
    """Memory that can be had without swapping, page cache included; None where the system, whose files lie in `root`, does not say."""
    known = [free for free in (_free_on_machine(root), _free_in_container(root)) if free is not None]
    return max(0, min(known)) if known else None


def check_room(needed_bytes: int, *, what: str, where: str, remedy: str, free_bytes: int | None = None) -> None:
    """Refuse what does not fit into the memory that is free, or into `free_bytes`.

    Raises:
        ScalerlError: it does not.
    """
    available = available_bytes() if free_bytes is None else free_bytes
    if available is not None and needed_bytes > available:
        sizes = f"takes {needed_bytes / 2**30:.1f} GiB, and {available / 2**30:.1f} GiB are free"
        raise ScalerlError(f"{what} {sizes}", where=where, remedy=remedy)


def _free_on_machine(root: Path) -> int | None:
    try:
        kibibytes = _table(root / "proc/meminfo").get("MemAvailable:")
    except OSError:
        return None
    return None if kibibytes is None else kibibytes * 1024


def _free_in_container(root: Path) -> int | None:
    for limit, used, parts in _CGROUPS:
        try:
            texts = [(root / "sys/fs/cgroup" / name).read_text().strip() for name in (limit, used)]
            cached = _table(root / "sys/fs/cgroup" / parts).get("inactive_file", 0)
        except OSError:
            continue
        if all(text.isdecimal() for text in texts):  # the limit is `max` where there is none
            return int(texts[0]) - int(texts[1]) + cached
    return None


def _table(path: Path) -> dict[str, int]:
    """The lines of a file of names and numbers, units left out."""
    return {words[0]: int(words[1]) for line in path.read_text().splitlines() if len(words := line.split()) > 1}
