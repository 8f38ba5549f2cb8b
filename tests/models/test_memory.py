"""Free memory as Linux tells it, with and without the limit of a container."""

import pytest

from scalerl.models._memory import available_bytes

GIB = 2**30
MACHINE = {"proc/meminfo": "MemTotal:       67108864 kB\nMemAvailable:   8388608 kB\nHugePages_Total:       0\n"}


def version_2(limit):
    folder = "sys/fs/cgroup/memory"
    return {f"{folder}.max": f"{limit}\n", f"{folder}.current": f"{3 * GIB}\n", f"{folder}.stat": f"anon 7\ninactive_file {GIB}\n"}


def version_1(limit):
    folder = "sys/fs/cgroup/memory/memory"
    stat = f"cache 7\ninactive_file {GIB}\n"
    return {f"{folder}.limit_in_bytes": f"{limit}\n", f"{folder}.usage_in_bytes": f"{3 * GIB}\n", f"{folder}.stat": stat}


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, None),
        ({"proc/meminfo": "MemTotal: 1 kB\n"}, None),
        (MACHINE, 8 * GIB),
        # Page cache that nobody uses can be had: 4 - 3 + 1.
        (MACHINE | version_2(4 * GIB), 2 * GIB),
        (MACHINE | version_1(4 * GIB), 2 * GIB),
        (version_2(4 * GIB), 2 * GIB),
        (MACHINE | version_2(GIB), 0),
        # No limit, as either version says it.
        (MACHINE | version_2("max"), 8 * GIB),
        (MACHINE | version_1(9223372036854771712), 8 * GIB),
    ],
)
def test_the_tighter_of_machine_and_container_counts(tmp_path, files, free):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert available_bytes(root=tmp_path) == free


def test_this_machine_says():
    assert available_bytes() is None or available_bytes() > 0
