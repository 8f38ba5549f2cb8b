"""Forecasts while other people's libraries train: a pruner for Optuna, a scheduler for Ray Tune, a callback for transformers and TRL.

    from scalerl.live import ForecastPruner

    study = optuna.create_study(direction="maximize", pruner=ForecastPruner(budget=200))

rule       when to stop: shared by all
optuna, ray_tune, transformers     thin adapters, one a library, which only they import: with `pip install 'scalerl[live]'`
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from scalerl.core.errors import ScalerlError
from scalerl.live.rule import Prospect, StoppingRule

if TYPE_CHECKING:
    from scalerl.live.optuna import ForecastPruner as ForecastPruner
    from scalerl.live.ray_tune import ForecastScheduler as ForecastScheduler
    from scalerl.live.transformers import ForecastCallback as ForecastCallback

_ADAPTERS = {"ForecastCallback": "transformers", "ForecastPruner": "optuna", "ForecastScheduler": "ray_tune"}
_EXTRAS = {"transformers": "train"}
"""Where an adapter's library comes from, if not with `live`."""

__all__ = ["ForecastCallback", "ForecastPruner", "ForecastScheduler", "Prospect", "StoppingRule"]


def __getattr__(name: str) -> Any:
    """An adapter, imported when it is first asked for.

    Raises:
        ScalerlError: its library is not installed.
    """
    if name not in _ADAPTERS:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    module = _ADAPTERS[name]
    try:
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        raise ScalerlError(
            f"it needs the package {error.name}, which is not installed",
            where=name,
            remedy=f"install it with: pip install 'scalerl[{_EXTRAS.get(module, 'live')}]'",
        ) from None
