"""The page beside a run: ``streampca run --serve``."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from streampca.cli.live import PERIOD, Progress, View
from streampca.errors import BadParameterError
from streampca.privacy.guarantee import Guarantee
from streampca.regret import RegretRecord
from streampca.release import Release
from streampca.views.curator import CuratorPage
from streampca.views.facts import admission_facts, budget_fact
from streampca.views.public import PublicPage
from streampca.views.server import Server


class Page:
    """A page that shows a run while it runs, and stays when it is over.

    ``public``: show releases and nothing else; otherwise all, to the curator, whose token ``token_file`` keeps.
    """

    def __init__(self, *, public: bool, port: int, token_file: Path | None = None) -> None:
        self._public = PublicPage()
        self._curator = None if public else CuratorPage(self._public)
        # It listens before the run begins: a port that is taken costs no privacy.
        self.server = Server(self._curator or self._public, port=port, token_file=token_file)

    def check(self, guarantee: Guarantee) -> None:
        """Refuse to publish what has no guarantee, before anything begins."""
        if self._curator is None and not guarantee.is_private:
            raise BadParameterError(f"--public: there is no privacy guarantee ({guarantee.theorem}); leave it out")

    def open(self, title: str) -> None:
        """Start serving. The public title does not tell the name of the file."""
        if self._curator is not None:
            self._curator.title = title
        print_url(self.server.start().url, public=self._curator is None)

    def describe(self, parameters: Mapping[str, Any]) -> None:
        """Show the public parameters of the run."""
        self._public.describe(parameters)

    def publish(self, releases: list[Release]) -> None:
        """Show releases."""
        self._public.add(releases)

    def views(self) -> list[View]:
        """The curator's page as a view. The public page is none: views get exact regret."""
        return [] if self._curator is None else [_PageView(self._curator)]

    def close(self, *, stay: bool, budget: str = "") -> None:
        """Show that the run is over, and what is left of the budget; stay until Ctrl-C if asked to."""
        if self._curator is not None and budget:
            self._curator.tell(budget_fact(budget))
        (self._curator or self._public).end()
        with suppress(KeyboardInterrupt):
            if stay:
                print("The page stays until Ctrl-C.", file=sys.stderr, flush=True)
                threading.Event().wait()
        self.server.stop()


def print_url(url: str, *, public: bool) -> None:
    """Print where the page is."""
    whose = "publishable" if public else "curator only, with its token"
    print(f"page ({whose}): {url}", file=sys.stderr, flush=True)


class _PageView(View):
    """The curator's page. Curator only."""

    period = PERIOD

    def __init__(self, page: CuratorPage) -> None:
        self._page = page

    def add(self, record: RegretRecord) -> None:
        """Add a point to the regret curve."""
        self._page.add([record])

    def show(self, progress: Progress) -> None:
        """Show how many rows came, how fast, and what was done to them."""
        super().show(progress)
        rate = progress.t / progress.seconds if progress.seconds > 0.0 else None
        further = () if progress.admitted is None else admission_facts(progress.admitted)
        self._page.count(rows=progress.t, rows_per_second=rate, further=further)
