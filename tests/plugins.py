"""Makes throw-away plug-in packages: what somebody else's distribution looks like once it is installed."""

import sys
from collections.abc import Mapping
from importlib import invalidate_caches
from pathlib import Path


def install(folder: Path, package: str, *, files: Mapping[str, str], entry_points: Mapping[str, str], monkeypatch) -> None:
    """Put `package` with its `files` and `entry_points` (group -> module) on the path of the running test."""
    for name, text in {"__init__.py": '"""A plug-in."""\n', **files}.items():
        path = folder / package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if not (path.parent / "__init__.py").exists():
            (path.parent / "__init__.py").write_text('"""A folder of a plug-in."""\n')
    metadata = folder / f"{package}-1.0.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    groups = "\n".join(f"[{group}]\n{package} = {module}" for group, module in entry_points.items())
    (metadata / "entry_points.txt").write_text(groups + "\n")
    monkeypatch.syspath_prepend(str(folder))
    invalidate_caches()
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
