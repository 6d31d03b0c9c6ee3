"""The page beside a run, ``streampca run --serve``, and of one that is over or runs elsewhere, ``streampca serve``."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from streampca.cli.live import PERIOD, Progress, View
from streampca.cli.options import RunPath, about
from streampca.errors import UsageError, needs
from streampca.regret.regret import RegretRecord
from streampca.views.facts import Fact, admission_facts, grouped
from streampca.views.page import Page
from streampca.views.run_files import RunFiles

with needs("serve"):
    from streampca.views.server import Server

#: Seconds between two looks at the files, and without news until the page says that there are none.
_EVERY, _QUIET = 0.5, 3.0


class ServedPage(View):
    """View of a run on a page in the browser, which stays when the run is over."""

    # With ``is_public`` the page gets releases and nothing else. Otherwise it gets exact figures, too: curator only.

    period = PERIOD

    def __init__(self, *, is_public: bool, port: int) -> None:
        self.page = Page(curator=not is_public)
        # It listens before the run begins: a port that is taken costs no privacy.
        self.server = Server(self.page, port=port)

    def add(self, record: RegretRecord) -> None:
        if self.page.curator:
            self.page.add([record])

    def show(self, progress: Progress) -> None:
        super().show(progress)
        if not self.page.curator:
            return
        # Curator only: where a batch ends depends on the bytes of cells and on bad rows.
        figures = [Fact("Rows", grouped(progress.t), curator=True)]
        if progress.seconds > 0.0:
            figures.append(Fact("Rows per second", grouped(round(progress.t / progress.seconds)), curator=True))
        self.page.show(figures + ([] if progress.admitted is None else admission_facts(progress.admitted)))

    def close(self, *, stay: bool, budget: str = "") -> None:
        """Show that the run is over, and the remaining budget; stay until Ctrl-C if asked to."""
        if self.page.curator and budget:
            self.page.show([*self.page.figures, Fact("Budget in the ledger", budget, curator=True)])
        self.page.end()
        if stay:
            print("The page stays until Ctrl-C.", file=sys.stderr, flush=True)
            with suppress(KeyboardInterrupt):
                threading.Event().wait()


def print_url(server: Server) -> None:
    """Print the address of a page."""
    reader = "curator only, with its token" if "#token" in server.url else "publishable"
    print(f"page ({reader}): {server.url}", file=sys.stderr, flush=True)


def serve(
    path: RunPath,
    /,
    *,
    public: Annotated[bool, about("Show what may be published, and read nothing else.", negative="")] = False,
    regret: Annotated[
        Path | None, about("File of the exact regret. Curator only. By default regret.csv beside the releases.")
    ] = None,
    port: Annotated[int, about("Port to listen on, on this machine only; 0 takes any.")] = 8765,
    name: Annotated[
        list[str] | None, about("Further name of the page, e.g. pca.example.org behind a proxy.", negative="")
    ] = None,
) -> int:
    """Show a run as a page in the browser, and follow it while it grows.

    Without --public the page is the curator's, behind the token in the printed link.
    Ends with Ctrl-C.
    """
    if public and regret is not None:
        raise UsageError("--regret: the exact regret is the curator's. Omit it with --public")
    if regret is None and not public:
        beside = RunFiles(path).path.with_name("regret.csv")
        regret = beside if beside.exists() else None
    run, page = RunFiles(path, regret), Page(curator=not public)
    run.update(page)  # refuses a file that is no run
    server, latest = Server(page, port=port, names=name or ()), time.monotonic()
    with server, suppress(KeyboardInterrupt):
        print_url(server)
        while True:
            if run.update(page):  # without a pause while the files bring news
                latest = time.monotonic()
                continue
            if time.monotonic() - latest > _QUIET:
                page.end("No news for a while")
            time.sleep(_EVERY)
    return 0
