"""From a training curve to its ceiling: laws, their posteriors, forecasts, and what is not known."""

from scalerl.curves.fit import PAPER, fit
from scalerl.curves.laws import Law, Parameter
from scalerl.curves.result import Band, Estimate, Fit, Forecast, LawFit, Status

__all__ = ["PAPER", "Band", "Estimate", "Fit", "Forecast", "Law", "LawFit", "Parameter", "Status", "fit"]
