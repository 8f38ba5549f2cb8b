"""What people look at: the same words, tables and curves on a terminal, on an HTML page and in a figure.

words      sentences and numbers       tables    rows of text       picture   arrays to draw
terminal, html, figure                 the three places that show them
document                               the same answer for programs, as JSON
"""

from scalerl.reports.document import to_document, to_json
from scalerl.reports.figure import write_figure
from scalerl.reports.html import write_html
from scalerl.reports.terminal import console_for, print_fits, print_listing

__all__ = ["console_for", "print_fits", "print_listing", "to_document", "to_json", "write_figure", "write_html"]
