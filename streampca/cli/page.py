"""The page beside a run: ``streampca run --serve``."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from streampca.cli.live import PERIOD, Progress, View
from streampca.dashboard.curator import CuratorBoard
from streampca.dashboard.public import PublicBoard
from streampca.dashboard.server import Server
from streampca.errors import BadParameter
from streampca.privacy.guarantee import Guarantee
from streampca.regret import RegretRecord
from streampca.release import Release


class Page:
    """A page that shows a run while it runs, and stays when it is over.

    Parameters
    ----------
    public : show releases and nothing else; else all, to the curator.
    port : where; 0 takes any.
    """

    def __init__(self, *, public: bool, port: int) -> None:
        self._board = PublicBoard()
        self._curator = None if public else CuratorBoard(self._board)
        # It listens before the run begins: a port that is taken costs no privacy.
        self._server = Server(self._curator or self._board, port=port)

    def check(self, guarantee: Guarantee) -> None:
        """Refuse to publish what has no guarantee, before anything begins."""
        if self._curator is None and not guarantee.is_private:
            raise BadParameter(f"--public: there is no privacy guarantee ({guarantee.theorem}); leave it out")

    def open(self, title: str) -> None:
        """Begin to serve. The public title does not tell the name of the file."""
        if self._curator is not None:
            self._curator.title = title
        say(self._server.start().url, public=self._curator is None)

    def describe(self, parameters: Mapping[str, Any]) -> None:
        """Take the public parameters of the run."""
        self._board.describe(parameters)

    def publish(self, releases: list[Release]) -> None:
        """Take in releases."""
        self._board.add(releases)

    def beside(self, view: View) -> View:
        """A terminal's view with the curator's page beside it. The public page is no view: views get exact regret."""
        return view if self._curator is None else Views((view, CuratorView(self._curator)))

    def close(self, *, stay: bool) -> None:
        """Say that the run is over; stay until Ctrl-C if asked to."""
        (self._curator or self._board).end()
        with suppress(KeyboardInterrupt):
            if stay:
                print("The page stays until Ctrl-C.", file=sys.stderr, flush=True)
                threading.Event().wait()
        self._server.stop()


def say(url: str, *, public: bool) -> None:
    """Tell where the page is."""
    whose = "publishable" if public else "curator only, with its token"
    print(f"page ({whose}): {url}", file=sys.stderr, flush=True)


class CuratorView:
    """Hands what the terminal shows to the curator's page. Curator only."""

    def __init__(self, board: CuratorBoard) -> None:
        self._board = board
        self._next = 0.0

    def start(self) -> None:
        """Nothing to do: the page is there."""

    def add(self, record: RegretRecord) -> None:
        """Take in a point of the regret curve."""
        self._board.add([record])

    @property
    def due(self) -> bool:
        """True four times a second."""
        return time.monotonic() >= self._next

    def show(self, progress: Progress) -> None:
        """Show where the run stands."""
        self._next = time.monotonic() + PERIOD
        rate = progress.t / progress.seconds if progress.seconds > 0.0 else None
        self._board.count(rows=progress.t, rows_per_second=rate, bad_rows=progress.bad_rows)

    def end(self, progress: Progress) -> None:
        """Show the last state."""
        self.show(progress)


class Views:
    """Several views as one."""

    def __init__(self, views: Sequence[View]) -> None:
        self._views = views

    def start(self) -> None:
        """Begin showing."""
        for view in self._views:
            view.start()

    def add(self, record: RegretRecord) -> None:
        """Take in a point of the regret curve."""
        for view in self._views:
            view.add(record)

    @property
    def due(self) -> bool:
        """True if one of them is due."""
        return any(view.due for view in self._views)

    def show(self, progress: Progress) -> None:
        """Show where the run stands, where it is time to."""
        for view in self._views:
            if view.due:
                view.show(progress)

    def end(self, progress: Progress) -> None:
        """Show the last state and stop."""
        for view in self._views:
            view.end(progress)
