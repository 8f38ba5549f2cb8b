"""From a training curve to its ceiling: laws, their posteriors, forecasts, and what is not known."""

from scalerl.curves.arms import Arm
from scalerl.curves.backtest import Backtest, backtest
from scalerl.curves.comparison import Comparison, compare
from scalerl.curves.decisions import Decisions, Verdict, decided
from scalerl.curves.fit import PAPER, fit
from scalerl.curves.laws import Law, Parameter
from scalerl.curves.result import Band, Draws, EarlyPhase, Estimate, Fit, Forecast, LawFit, Status

__all__ = [
    "PAPER",
    "Arm",
    "Backtest",
    "Band",
    "Comparison",
    "Decisions",
    "Draws",
    "EarlyPhase",
    "Estimate",
    "Fit",
    "Forecast",
    "Law",
    "LawFit",
    "Parameter",
    "Status",
    "Verdict",
    "backtest",
    "compare",
    "decided",
    "fit",
]
