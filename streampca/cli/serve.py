"""``streampca serve``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from collections.abc import Callable

    from streampca.views.curator import CuratorPage
    from streampca.views.public import PublicPage


#: Seconds between two looks at the files, and without news until the page says that there are none.
_EVERY, _QUIET = 0.5, 3.0


def serve(
    path: Path,
    /,
    *,
    public: Annotated[bool, Parameter(negative="")] = False,
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
        File of the exact regret. Curator only. regret.csv beside the releases, if left out.
    private_regret
        File of the publishable regret, for releases without Gram matrices.
    host
        Address to listen on; other than 127.0.0.1 with --public only.
    port
        Port to listen on; 0 takes any.
    name
        Further name under which the page may be asked for, e.g. pca.example.org behind a proxy.
    token_file
        Keep the token of the curator's page in this file (mode 0600), so that an open page goes on after a restart.
    """
    from streampca.cli.page import print_url
    from streampca.errors import BadParameterError
    from streampca.views.curator import CuratorPage
    from streampca.views.public import PublicPage
    from streampca.views.run_files import CuratorRun, PublicRun
    from streampca.views.server import Server

    if public and regret is not None:
        raise BadParameterError("--regret: the exact regret is the curator's; leave it out with --public")
    if public and token_file is not None:
        raise BadParameterError("--token-file: the public page has no token; leave it out with --public")
    run, shown = PublicRun(path, private_regret), PublicPage()
    run.update(shown)  # a file that is no run is refused at once
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
    """Call ``updates`` until interrupted, at once again while they bring something; after some seconds say so."""
    latest = time.monotonic()
    while True:
        news = [update() for update in updates]
        if any(news):
            latest = time.monotonic()
            continue
        if time.monotonic() - latest > _QUIET:
            page.end("No news for a while")
        time.sleep(_EVERY)
