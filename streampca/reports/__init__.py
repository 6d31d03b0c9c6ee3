"""Reports and pictures of a run: one HTML file that needs nothing else, and PNG or SVG pieces.

Everything is made of releases (post-processing), unless the exact regret is
given: those figures are the curator's, and are marked on every one of them.

Needs the extra ``report`` (matplotlib).
"""

from streampca.reports.release import plot_release
from streampca.reports.run import Run, read_run

__all__ = ["Run", "plot_release", "read_run"]
