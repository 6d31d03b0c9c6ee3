"""The web server of a page: static files and one stream of events, on loopback, in a thread beside the run.

Every page that is open in the same browser can send requests to a local server. Therefore the Host header must name
this server (DNS rebinding), and the events require the token of the link in a header, which no other page can add or
read. Cookies are not used: browsers send them to every port of a host. A public page needs no token. Readers on other
machines come through a reverse proxy, which ends TLS and limits connections.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Self

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from streampca.errors import UsageError
from streampca.views.page import Page

#: Headers of every answer: nothing of another site is loaded, and no other site may frame or load this one.
HEADERS = [
    ("content-security-policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    ("x-content-type-options", "nosniff"), ("x-frame-options", "DENY"), ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"), ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
]  # fmt: skip
#: Seconds between two looks for something new, and without any until a comment keeps the connection open.
_LOOK_EVERY, _COMMENT_EVERY = 0.5, 10.0
#: Connections held at a time. More are refused: the run in the same process needs files, too.
_CONNECTIONS = 256


class Server:
    """A page in the browser, served within a ``with`` block. Raises `UsageError` if it cannot be, or may not.

    ``port`` is 0 for any free one, and ``names`` are further host names, such as that of a reverse proxy. The page of
    the curator is served behind a token, which is in ``url`` and never logged.
    """

    def __init__(self, page: Page, *, port: int = 8765, names: Sequence[str] = ()) -> None:
        for name in names:
            if set(name) & set("*:/"):  # a wildcard would accept the name of any other site
                raise UsageError(f"--name {name}: expected a host name, such as pca.example.org")
        token = secrets.token_urlsafe(24) if page.curator else ""
        # Privacy: from here on, a page without a token refuses what may not be published.
        if not token:
            page.publish()
        # uvicorn waits for open answers before it stops, and events have no end of their own.
        self._closing = threading.Event()
        self._socket = _listen(port)
        self.port = int(self._socket.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}/" + (f"#token={token}" if token else "")
        hosts = ["127.0.0.1", "localhost", *names]
        app = Starlette(
            routes=[
                Route("/events", _events(page, token, self._closing)),
                Mount("/", StaticFiles(packages=[("streampca.views", "static")], html=True)),
            ],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)],
        )
        self._server = uvicorn.Server(uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, headers=HEADERS, lifespan="off",
            ws="none", http="h11", limit_concurrency=_CONNECTIONS, timeout_graceful_shutdown=2,
        ))  # fmt: skip
        run = self._server.run
        self._thread = threading.Thread(target=run, args=([self._socket],), name="streampca page", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # All connections are closed.
        self._closing.set()
        self._server.should_exit = True
        self._thread.join(5.0)
        self._socket.close()


def _events(page: Page, token: str, closing: threading.Event) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of the events: the whole page as JSON, whenever it changes."""

    async def messages() -> AsyncIterator[str]:
        yield "retry: 1000\n\n"
        seen, sent = -1, time.monotonic()
        while not closing.is_set():
            # Polled: the run must not wait for readers, and a page that changes 1000 times a second is sent twice.
            if page.version != seen:
                seen, sent = page.version, time.monotonic()
                yield f"data: {await asyncio.to_thread(page.message)}\n\n"
            elif time.monotonic() - sent > _COMMENT_EVERY:
                sent = time.monotonic()
                yield ": still here\n\n"
            await asyncio.sleep(_LOOK_EVERY)

    async def events(request: Request) -> Response:
        # Compared in constant time: the time of an answer tells nothing of the token.
        given = request.headers.get("authorization", "")
        if token and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return PlainTextResponse("the token is missing or wrong\n", 401, {"www-authenticate": "Bearer"})
        # Other sites cannot read the answer, as it has no CORS header. Browsers say who asks: they get none at all.
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return PlainTextResponse("requests of other sites are refused\n", 403)
        headers = {"x-accel-buffering": "no"}  # nginx passes events on as they come
        if request.method == "HEAD":
            return Response(media_type="text/event-stream", headers=headers)
        return StreamingResponse(messages(), media_type="text/event-stream", headers=headers)

    return events


def _listen(port: int) -> socket.socket:
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except (OSError, OverflowError) as problem:
        raise UsageError(f"cannot listen on port {port} ({problem}); choose another --port") from problem
    # Connections inherit it. Without it, an answer waits 40 ms for the acknowledgment of its headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
