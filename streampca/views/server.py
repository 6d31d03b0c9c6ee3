"""The web server of a page: access control, routes, and a thread of its own beside the run.

A local server is reached by every page that the same browser has open. Therefore the Host header must name this server
(DNS rebinding), the Origin and Sec-Fetch-Site headers must not name another site, only GET and HEAD without a body are
answered, and the curator's data requires a token in a header, which no other page can add. Cookies are not used:
browsers send them to every port of a host.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streampca.errors import BadParameterError
from streampca.views.connections import Connection, most_connections
from streampca.views.curator import CuratorPage
from streampca.views.page import PageData
from streampca.views.public import PublicPage

LOOPBACK = ("127.0.0.1", "::1", "localhost")
PORT = 8765

#: Every file that is served, by its path; no other is read from the disk.
STATIC = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "/feed.js": ("feed.js", "text/javascript; charset=utf-8"),
    "/uplot.js": ("uplot.js", "text/javascript; charset=utf-8"),
    "/uplot.css": ("uplot.css", "text/css; charset=utf-8"),
    "/uplot-LICENSE.txt": ("uplot-LICENSE.txt", "text/plain; charset=utf-8"),
    "/favicon.ico": ("icon.svg", "image/svg+xml"),
}

#: Headers of every answer.
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"cache-control", b"no-store"),
)

_LONGEST_PATH, _LONGEST_HEADERS = 128, 16384
#: Connections that the system holds until they are accepted, all of them in one go.
_BACKLOG = 64
#: Seconds between two looks for something new, and without any until a comment keeps the connection open.
_LOOK_EVERY, _COMMENT_EVERY = 0.5, 10.0
#: Share of the connections that may read events, so that others can ask for files; and their number of one address.
_READERS, _READERS_OF_ONE = 0.75, 64


class Server:
    """A page in the browser, until `stop`.

    Parameters
    ----------
    page : the page. A `CuratorPage` is served on loopback only, and behind a token.
    host : address to listen on.
    port : port to listen on; 0 for any free one.
    names : further accepted names of this machine, with a port if it is not `port`.
    token_file : file of mode 0600 for the token of a `CuratorPage`, so that an open page reconnects after a restart on
        the same port. Created if missing. None creates a fresh token.

    Attributes
    ----------
    url : address of the page; holds the token of the curator's page, which is never logged.

    Raises
    ------
    BadParameterError
        If the server cannot listen on the address, exact figures would leave loopback, or others can read the token.
    """

    def __init__(
        self,
        page: PublicPage | CuratorPage,
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        names: Collection[str] = (),
        token_file: Path | None = None,
    ) -> None:
        if not isinstance(page, PublicPage) and host not in LOOPBACK:
            raise BadParameterError(f"host={host!r}: exact figures are served on 127.0.0.1 only; use the public page")
        token = secrets.token_urlsafe(24) if token_file is None else kept_token(token_file)
        self._closing = threading.Event()
        self._socket = _listen(host, port)
        self.port = int(self._socket.getsockname()[1])

        # Accepted values of the Host header.
        own = {f"[{name}]" if ":" in name else name for name in (*LOOPBACK, host)}
        hosts = {f"{name}:{self.port}" for name in {*own, *names}} | set(names) | (own if self.port == 80 else set())
        hosts = {name.lower() for name in hosts}

        closing, fragment = self._closing.is_set, ""
        if isinstance(page, PublicPage):
            app = public_app(page, hosts=hosts, closing=closing)
        else:
            app, fragment = curator_app(page, token=token, hosts=hosts, closing=closing), f"#token={token}"
        self._server = uvicorn.Server(uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none", http=Connection,
            backlog=_BACKLOG, timeout_keep_alive=5, timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=16384,
        ))  # fmt: skip
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="streampca page", daemon=True
        )
        shown = f"[{host}]" if ":" in host else "127.0.0.1" if host in ("0.0.0.0", "localhost") else host  # noqa: S104
        self.url = f"http://{shown}:{self.port}/{fragment}"

    def start(self) -> Self:
        """Start serving."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close all connections and stop."""
        self._closing.set()
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(5.0)
        self._socket.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def kept_token(path: Path) -> str:
    """Return the token in a file, and create a missing file.

    Raises `BadParameterError` if the file is not a regular file of mode 0600, or holds no token.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK  # neither a link nor a pipe that blocks
    try:
        try:
            handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            handle = os.open(path, flags)
        else:
            os.write(handle, secrets.token_urlsafe(24).encode() + b"\n")
            os.lseek(handle, 0, os.SEEK_SET)
        with open(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077 or status.st_uid != os.getuid():
                raise BadParameterError(f"{path} can be read by others than its owner; delete it, or chmod 600 it")
            token = file.read(1024).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise BadParameterError(f"{path} cannot be used as a token file ({problem}); name another one") from problem
    if not 16 <= len(token) <= 128:
        raise BadParameterError(f"{path} holds no token; delete it, and a new one is created")
    return token


def public_app(page: PublicPage, *, hosts: Iterable[str], closing: Callable[[], bool] = lambda: False) -> ASGIApp:
    """Return the application of the public page, which refuses releases without a guarantee from now on.

    Raises `BadParameterError` if the page is no `PublicPage`, or holds such a release.
    """
    if type(page) is not PublicPage:
        raise BadParameterError(f"{type(page).__name__} may not be published; pass a PublicPage")
    page.only_private()
    return AccessControl(_app(page, closing), hosts)


def curator_app(
    page: CuratorPage, *, token: str, hosts: Iterable[str], closing: Callable[[], bool] = lambda: False
) -> ASGIApp:
    """Return the application of the curator's page. Raises `BadParameterError` if the token is too short."""
    if len(token) < 16:
        raise BadParameterError("the token is too short; use secrets.token_urlsafe()")
    return AccessControl(_app(page, closing), hosts, token)


class AccessControl:
    """Refuse requests that do not come from the page itself, and add `HEADERS` to every answer.

    Parameters
    ----------
    app : the application behind it.
    hosts : values of the Host header that name this server, in lower case.
    token : required as ``Authorization: Bearer TOKEN`` under ``/api/``; None requires none.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], token: str | None = None) -> None:
        self._app, self._hosts, self._token = app, frozenset(hosts), token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # no websockets

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name for name, _ in message.get("headers", ())}
                extra = [(name, value) for name, value in HEADERS if name not in known]
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            await send(message)

        await (self._refusal(scope) or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        if sum(len(name) + len(value) for name, value in scope["headers"]) > _LONGEST_HEADERS:
            return PlainTextResponse("the headers are too long\n", 431)
        if len(scope.get("raw_path") or scope["path"].encode()) > _LONGEST_PATH or scope["query_string"]:
            return PlainTextResponse("there is no such page\n", 404)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("only GET is answered\n", 405, {"allow": "GET, HEAD"})
        if headers.get(b"content-length", [b"0"]) != [b"0"] or b"transfer-encoding" in headers:
            return PlainTextResponse("a body is not accepted\n", 413)
        host = headers.get(b"host", [])
        if len(host) != 1 or host[0].decode("latin-1").lower() not in self._hosts:
            return PlainTextResponse("the Host header does not name this server\n", 421)
        for origin in headers.get(b"origin", []):
            scheme, _, name = origin.decode("latin-1").lower().partition("://")
            if scheme not in ("http", "https") or name not in self._hosts:
                return PlainTextResponse("requests of other sites are refused\n", 403)
        # Another site may link to the page, but not load it or a part of it.
        link = headers.get(b"sec-fetch-mode") == [b"navigate"] and headers.get(b"sec-fetch-dest") == [b"document"]
        if not link and headers.get(b"sec-fetch-site", [b"none"])[0] not in (b"none", b"same-origin"):
            return PlainTextResponse("requests of other sites are refused\n", 403)
        if self._token is not None and scope["path"].startswith("/api"):
            given = headers.get(b"authorization", [])
            if len(given) != 1 or not hmac.compare_digest(given[0], b"Bearer " + self._token.encode()):
                return PlainTextResponse("the token is missing or wrong\n", 401, {"www-authenticate": "Bearer"})
        return None


@cache
def _static(name: str) -> bytes:
    return files("streampca.views").joinpath("static", name).read_bytes()


def _app(page: PageData, closing: Callable[[], bool]) -> Starlette:
    readers: Counter[str] = Counter()

    async def file(request: Request) -> Response:
        name, kind = STATIC[request.url.path]
        return Response(_static(name), media_type=kind)

    async def state(_request: Request) -> Response:
        return Response(page.message(), media_type="application/json")

    async def events(request: Request) -> Response:
        address = request.client.host if request.client else ""
        # Behind a proxy on this machine all readers have the address of the proxy.
        one = readers[address] if address not in LOOPBACK else 0
        if readers.total() >= _READERS * most_connections() or one >= _READERS_OF_ONE:
            return PlainTextResponse("too many readers\n", 503, {"retry-after": "10"})
        kind: dict[str, Any] = {"media_type": "text/event-stream", "headers": {"x-accel-buffering": "no"}}
        if request.method == "HEAD":
            return Response(**kind)

        readers[address] += 1  # before the answer starts, so that simultaneous readers are counted
        return _Events(_messages(page, closing), lambda: readers.subtract({address: 1}), **kind)

    routes = [Route(path, file) for path in STATIC]
    routes += [Route("/api/state", state), Route("/api/events", events)]
    return Starlette(routes=routes)


class _Events(StreamingResponse):
    """Events for one reader, who is counted until they end."""

    def __init__(self, events: AsyncIterator[str], leave: Callable[[], None], **kind: Any) -> None:
        super().__init__(events, **kind)
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


async def _messages(page: PageData, closing: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield server-sent events: the whole page whenever it changes."""
    yield "retry: 1000\n\n"
    seen, sent = -1, time.monotonic()
    while not closing():
        stamp = page.stamp
        if stamp != seen:
            seen, sent = stamp, time.monotonic()
            yield f"data: {await asyncio.to_thread(page.message)}\n\n"
        elif time.monotonic() - sent > _COMMENT_EVERY:
            sent = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(_LOOK_EVERY)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets that name their protocol; without it, an answer waits 40 ms for the
    # acknowledgment of its headers.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as problem:
        listener.close()
        raise BadParameterError(f"cannot listen on {host}, port {port} ({problem}); choose another --port") from problem
    return listener
