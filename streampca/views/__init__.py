"""Views of releases and runs: cards, pictures, notebooks, pages and reports.

`streampca.views.server` needs the extra ``serve``, `views.report` and `views.plots` the extra ``report``.
"""

from streampca.release.file import save_release
from streampca.tables import RENDERERS
from streampca.views.card import Watch, release_html, stream_html
from streampca.views.plots import plot

RENDERERS.update(card=release_html, plot=plot, save=save_release, stream=stream_html, watch=Watch)
