"""What the package imports, and what it says where a library is missing."""

import subprocess
import sys

import pytest

import scalerl.live
from scalerl.core.errors import ScalerlError


def test_nothing_heavy_is_imported_before_an_adapter_is_asked_for():
    program = "import sys, scalerl.live; print({'optuna', 'ray', 'torch', 'transformers', 'pandas'} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.mark.parametrize(
    ("name", "adapter", "package", "extra"),
    [
        ("ForecastPruner", "optuna", "optuna", "live"),
        ("ForecastScheduler", "ray_tune", "ray", "live"),
        ("ForecastCallback", "transformers", "transformers", "train"),
    ],
)
def test_without_its_library_an_adapter_names_the_remedy(monkeypatch, name, adapter, package, extra):
    monkeypatch.delitem(sys.modules, f"scalerl.live.{adapter}", raising=False)
    for module in [module for module in sys.modules if module.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    remedy = rf"install it with: pip install 'scalerl\[{extra}\]'"
    with pytest.raises(ScalerlError, match=rf"^{name}: it needs the package {package}\S*, which is not installed; {remedy}$"):
        getattr(scalerl.live, name)


def test_another_name_is_no_attribute():
    with pytest.raises(AttributeError, match=r"module 'scalerl.live' has no attribute 'ForecastMaker'"):
        _ = scalerl.live.ForecastMaker
