"""Pages and reports of a run: what it releases, and for the curator how good that is.

The *public page* (`PublicPage`) is made of releases and of nothing else:
whatever it shows is post-processing of them, under their guarantee. The
*curator's page* (`CuratorPage`) adds exact functions of raw rows, which have no
privacy at all: it is served on loopback only, behind a token. A report is a
page as one HTML file, with its data inside.

`streampca.dashboard.server` needs the extra ``serve``, `streampca.dashboard.report` the extra ``report``.
"""

from streampca.dashboard.curator import CuratorPage
from streampca.dashboard.public import PublicPage

__all__ = ["CuratorPage", "PublicPage"]
