"""Serving a page from a thread of its own, beside the run."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from streampca.dashboard.app import curator_app, public_app
from streampca.dashboard.board import Board
from streampca.dashboard.curator import CuratorBoard
from streampca.dashboard.public import PublicBoard
from streampca.errors import BadParameter

LOOPBACK = ("127.0.0.1", "::1", "localhost")
PORT = 8765


class Server:
    """A page for a board, until `stop`.

    Parameters
    ----------
    board : what is shown. A `CuratorBoard` is served on loopback only, and behind a fresh token.
    host : address to listen on.
    port : 0 takes any that is free.
    names : further names of this machine that the page may be asked for under, with a port if it is not `port`.

    Attributes
    ----------
    url : where the page is; holds the token of the curator's face, which is never logged.

    Raises
    ------
    BadParameter
        If the address cannot be listened on, or is not loopback where it must be.
    """

    def __init__(
        self, board: PublicBoard | CuratorBoard, *, host: str = "127.0.0.1", port: int = PORT, names: Iterable[str] = ()
    ) -> None:
        token = None if isinstance(board, PublicBoard) else secrets.token_urlsafe(24)
        if token is not None and host not in LOOPBACK:
            raise BadParameter(f"host={host!r}: exact figures are served on 127.0.0.1 only; use the public face")
        self._closing = threading.Event()
        self._socket = _listen(host, port)
        bound = int(self._socket.getsockname()[1])
        app = _face(board, token, _hosts(host, bound, names), self._closing)
        self._server = uvicorn.Server(uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none", http="h11",
            limit_concurrency=128, timeout_keep_alive=5, timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=16384,
        ))  # fmt: skip
        self._thread = threading.Thread(target=self._serve, name="streampca page", daemon=True)
        shown = f"[{host}]" if ":" in host else "127.0.0.1" if host in ("0.0.0.0", "localhost") else host  # noqa: S104
        self.port = bound
        self.url = f"http://{shown}:{bound}/" + ("" if token is None else f"#token={token}")

    def start(self) -> Self:
        """Begin to serve."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Hang up and stop."""
        self._closing.set()
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(5.0)
        self._socket.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])


def _face(board: Board, token: str | None, hosts: frozenset[str], closing: threading.Event) -> ASGIApp:
    if isinstance(board, CuratorBoard):
        assert token is not None
        return curator_app(board, token=token, hosts=hosts, closing=closing.is_set)
    assert isinstance(board, PublicBoard)
    return public_app(board, hosts=hosts, closing=closing.is_set)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(64)
    except (OSError, OverflowError) as problem:
        made.close()
        raise BadParameter(f"cannot listen on {host}, port {port} ({problem}); choose another --port") from problem
    return made


def _hosts(host: str, port: int, names: Iterable[str]) -> frozenset[str]:
    """What the Host header may say."""
    plain = {f"[{name}]" if ":" in name else name for name in (*LOOPBACK, host)}
    ports = ("", f":{port}") if port == 80 else (f":{port}",)
    own = {f"{name}{end}" for name in plain for end in ports}
    given = {f"{name}{end}" for name in names for end in ("", f":{port}")}
    return frozenset(name.lower() for name in own | given)
