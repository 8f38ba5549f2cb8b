"""What people look at: the same words, tables and curves on a terminal, on an HTML page and in a figure.

words      sentences and numbers       tables    rows of text       picture   arrays to draw
run        a run of our own: counts, checks    costs     its ledger in words    kv    keep or re-prefill?
decisions  targets, budget, backtest           comparison    recipes side by side
terminal, html, figure                 the three places that show them        live      a run while it goes on
document                               the same answer for programs, as JSON
"""

from scalerl.reports.document import to_document, to_json
from scalerl.reports.figure import write_figure
from scalerl.reports.html import write_html
from scalerl.reports.kv import KeepOrReprefill
from scalerl.reports.run import RunReport
from scalerl.reports.terminal import console_for, print_comparison, print_fits, print_listing, print_run, print_tables

__all__ = [
    "KeepOrReprefill",
    "RunReport",
    "console_for",
    "print_comparison",
    "print_fits",
    "print_listing",
    "print_run",
    "print_tables",
    "to_document",
    "to_json",
    "write_figure",
    "write_html",
]
