"""The page beside a run, ``streampca run --serve``, and of one that is over or runs elsewhere, ``streampca serve``."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from streampca.cli.live import PERIOD, Progress, View
from streampca.cli.options import RunPath, about
from streampca.errors import BadParameterError
from streampca.regret.regret import RegretRecord
from streampca.views.curator import CuratorPage
from streampca.views.facts import admission_facts, budget_fact
from streampca.views.public import PublicPage
from streampca.views.run_files import CuratorRun, PublicRun
from streampca.views.server import Server

#: Seconds between two looks at the files, and without news until the page says that there are none.
_EVERY, _QUIET = 0.5, 3.0


@dataclass(eq=False)
class CuratorView(View):
    """View of a run on the curator's page: exact regret, rows and their speed, and changes of rows. Curator only."""

    period = PERIOD

    page: CuratorPage

    def add(self, record: RegretRecord) -> None:
        self.page.add([record])

    def show(self, progress: Progress) -> None:
        super().show(progress)
        rate = progress.t / progress.seconds if progress.seconds > 0.0 else None
        further = () if progress.admitted is None else admission_facts(progress.admitted)
        self.page.count(rows=progress.t, rows_per_second=rate, further=further)


class Page:
    """A page that shows a run while it runs, and stays when it is over.

    With ``is_public`` it shows releases and nothing else. Otherwise `curator` is the curator's view, the only part that
    gets exact figures, and ``token_file`` keeps its token.
    """

    def __init__(self, *, is_public: bool, port: int, token_file: Path | None = None) -> None:
        self.public = PublicPage()
        self.curator = None if is_public else CuratorView(CuratorPage(self.public))
        self._page = self.public if self.curator is None else self.curator.page
        # It listens before the run begins: a port that is taken costs no privacy.
        self.server = Server(self._page, port=port, token_file=token_file)

    def open(self, title: str) -> None:
        """Start serving. The public title does not contain the name of the file."""
        if self.curator is not None:
            self.curator.page.title = title
        print_url(self.server.start().url, public=self.curator is None)

    def close(self, *, stay: bool, budget: str = "") -> None:
        """Show that the run is over, and the remaining budget; stay until Ctrl-C if asked to."""
        if self.curator is not None and budget:
            self.curator.page.show(budget_fact(budget))
        self._page.end()
        with suppress(KeyboardInterrupt):
            if stay:
                print("The page stays until Ctrl-C.", file=sys.stderr, flush=True)
                threading.Event().wait()
        self.server.stop()


def print_url(url: str, *, public: bool) -> None:
    """Print the address of the page."""
    reader = "publishable" if public else "curator only, with its token"
    print(f"page ({reader}): {url}", file=sys.stderr, flush=True)


def serve(
    path: RunPath,
    /,
    *,
    public: Annotated[bool, about("Show what may be published, and read nothing else.", negative="")] = False,
    regret: Annotated[
        Path | None, about("File of the exact regret. Curator only. By default regret.csv beside the releases.")
    ] = None,
    private_regret: Annotated[
        Path | None, about("File of the publishable regret, for releases without Gram matrices.")
    ] = None,
    host: Annotated[str, about("Address to listen on; other than 127.0.0.1 with --public only.")] = "127.0.0.1",
    port: Annotated[int, about("Port to listen on; 0 takes any.")] = 8765,
    name: Annotated[
        list[str] | None, about("Further name of the page, e.g. pca.example.org behind a proxy.", negative="")
    ] = None,
    token_file: Annotated[
        Path | None, about("Keep the curator's token in this file (mode 0600), for pages open after a restart.")
    ] = None,
) -> int:
    """Show a run as a page in the browser, and follow it while it grows.

    Without --public the page is the curator's: on this machine only, behind the token in
    the printed link. Ends with Ctrl-C.
    """
    if public and regret is not None:
        raise BadParameterError("--regret: the exact regret is the curator's. Omit it with --public.")
    if public and token_file is not None:
        raise BadParameterError("--token-file: the public page has no token. Omit it with --public.")
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
    server, latest = Server(page, host=host, port=port, names=name or (), token_file=token_file), time.monotonic()
    with server, suppress(KeyboardInterrupt):
        print_url(server.url, public=public)
        while True:  # without a pause while the files bring news
            if sum(update() for update in updates):  # every update is called
                latest = time.monotonic()
                continue
            if time.monotonic() - latest > _QUIET:
                page.end("No news for a while")
            time.sleep(_EVERY)
    return 0
