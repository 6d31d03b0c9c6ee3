"""The page beside a run, ``streampca run --serve``, and of one that is over or runs elsewhere, ``streampca serve``."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from streampca.cli.live import PERIOD, Progress, View
from streampca.cli.options import Switch
from streampca.errors import BadParameterError
from streampca.privacy.guarantee import Guarantee
from streampca.regret.regret import RegretRecord
from streampca.release.release import Release
from streampca.views.curator import CuratorPage
from streampca.views.facts import admission_facts, budget_fact
from streampca.views.public import PublicPage
from streampca.views.run_files import CuratorRun, PublicRun
from streampca.views.server import Server

#: Seconds between two looks at the files, and without news until the page says that there are none.
_EVERY, _QUIET = 0.5, 3.0


class Page(View):
    """A page that shows a run while it runs, and stays when it is over.

    ``public``: show releases and nothing else; otherwise all, to the curator, whose token ``token_file`` keeps. A
    public page is no view of a session, for views get exact regret.
    """

    period = PERIOD

    def __init__(self, *, public: bool, port: int, token_file: Path | None = None) -> None:
        self._public = PublicPage()
        self._curator = None if public else CuratorPage(self._public)
        # It listens before the run begins: a port that is taken costs no privacy.
        self.server = Server(self._curator or self._public, port=port, token_file=token_file)

    def check(self, guarantee: Guarantee) -> None:
        """Refuse to publish what has no guarantee, before anything begins."""
        if self._curator is None and not guarantee.is_private:
            raise BadParameterError(f"serve.public: there is no privacy guarantee ({guarantee.theorem}); leave it out")

    def open(self, title: str) -> None:
        """Start serving. The public title does not contain the name of the file."""
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
        """The page where it is the curator's."""
        return [] if self._curator is None else [self]

    def add(self, record: RegretRecord) -> None:
        """Add a point to the regret curve. Curator only."""
        if self._curator is not None:
            self._curator.add([record])

    def show(self, progress: Progress) -> None:
        """Show how many rows came, how fast, and what was done to them. Curator only."""
        super().show(progress)
        if self._curator is not None:
            rate = progress.t / progress.seconds if progress.seconds > 0.0 else None
            further = () if progress.admitted is None else admission_facts(progress.admitted)
            self._curator.count(rows=progress.t, rows_per_second=rate, further=further)

    def close(self, *, stay: bool, budget: str = "") -> None:
        """Show that the run is over, and what is left of the budget; stay until Ctrl-C if asked to."""
        if self._curator is not None and budget:
            self._curator.show(budget_fact(budget))
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


def serve(
    path: Path,
    /,
    *,
    public: Switch = False,
    regret: Path | None = None,
    private_regret: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8765,
    name: Annotated[list[str] | None, Parameter(negative="")] = None,
    token_file: Path | None = None,
) -> int:
    """Show a run as a page in the browser, and follow it while it grows.

    Without --public the page is the curator's: on this machine only, behind the token in
    the printed link. Ends with Ctrl-C.

    Parameters
    ----------
    path
        releases.jsonl, or a store (run.db), or a folder with one of them.
    public
        Show what may be published, and nothing else: no exact figure and no key is read.
    regret
        File of the exact regret. Curator only. By default regret.csv beside the releases.
    private_regret
        File of the publishable regret, for releases without Gram matrices.
    host
        Address to listen on; other than 127.0.0.1 with --public only.
    port
        Port to listen on; 0 takes any.
    name
        Further name under which the page may be asked for, e.g. pca.example.org behind a proxy.
    token_file
        Keep the token of the curator's page in this file (mode 0600), so that an open page continues after a restart.
    """
    if public and regret is not None:
        raise BadParameterError("--regret: the exact regret is the curator's; leave it out with --public")
    if public and token_file is not None:
        raise BadParameterError("--token-file: the public page has no token; leave it out with --public")
    run, shown = PublicRun(path, private_regret), PublicPage()
    run.update(shown)  # refuses a file that is no run
    page: PublicPage | CuratorPage = shown
    updates = [partial(run.update, shown)]
    if not public:
        page = curators = CuratorPage(shown)
        page.title = f"{shown.title} · {run.path.name}"
        exact = regret or run.path.with_name("regret.csv")
        if exact.exists():
            updates.append(partial(CuratorRun(exact).update, curators))
        elif regret is not None:
            raise BadParameterError(f"--regret {exact}: there is no such file")
    made = Server(page, host=host, port=port, names=name or (), token_file=token_file)
    with made as server, suppress(KeyboardInterrupt):
        print_url(server.url, public=public)
        follow(updates, page)
    return 0


def follow(updates: Sequence[Callable[[], bool]], page: PublicPage | CuratorPage) -> None:
    """Call ``updates`` until interrupted, without a pause while they bring news. The page says so if there are none."""
    latest = time.monotonic()
    while True:
        news = [update() for update in updates]
        if any(news):
            latest = time.monotonic()
            continue
        if time.monotonic() - latest > _QUIET:
            page.end("No news for a while")
        time.sleep(_EVERY)
