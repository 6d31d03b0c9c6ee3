"""``streampca serve``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from streampca.dashboard.curator import CuratorBoard
    from streampca.dashboard.files import CuratorRun


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
    """
    import threading

    from streampca.cli.page import say
    from streampca.dashboard.curator import CuratorBoard
    from streampca.dashboard.files import CuratorRun, PublicRun
    from streampca.dashboard.follow import follow, publish
    from streampca.dashboard.public import PublicBoard
    from streampca.dashboard.server import Server
    from streampca.errors import BadParameter

    if public and regret is not None:
        raise BadParameter("--regret: the exact regret is the curator's; leave it out with --public")
    run = PublicRun(path, private_regret)
    faced = PublicBoard()
    looks: list[Callable[[], bool]] = [lambda: publish(faced, run)]
    board: PublicBoard | CuratorBoard = faced
    if not public:
        board = CuratorBoard(faced)
        beside = regret or run.path.with_name("regret.csv")
        if regret is not None and not beside.exists():
            raise BadParameter(f"--regret {beside}: there is no such file")
        if beside.exists():
            looks.append(_teller(board, CuratorRun(beside)))
    publish(faced, run)  # a file that is no run is told at once
    board.title = f"{faced.title} · {run.path.name}" if board is not faced else faced.title
    with Server(board, host=host, port=port, names=name or ()) as server, suppress(KeyboardInterrupt):
        say(server.url, public=public)
        follow(looks, threading.Event(), settled=lambda: board.end("No news for a while"))
    return 0


def _teller(board: CuratorBoard, run: CuratorRun) -> Callable[[], bool]:
    from streampca.dashboard.follow import tell

    return lambda: tell(board, run)
