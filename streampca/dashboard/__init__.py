"""A live page in the browser: what a run releases, and for the curator how good it is.

Two faces. The *public* one is made of releases and of nothing else
(`PublicBoard`): whatever it shows is post-processing of them, under their
guarantee. The *curator's* adds exact functions of raw rows (`CuratorBoard`),
which have no privacy at all: loopback only, behind a token.

Needs the extra ``serve`` for the server; boards and files need nothing.
"""

from streampca.dashboard.curator import CuratorBoard
from streampca.dashboard.public import PublicBoard

__all__ = ["CuratorBoard", "PublicBoard"]
