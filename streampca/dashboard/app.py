"""The web applications of the two faces."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable
from functools import cache
from importlib.resources import files

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from streampca.dashboard.board import Board
from streampca.dashboard.curator import CuratorBoard
from streampca.dashboard.guard import Guard
from streampca.dashboard.public import PublicBoard
from streampca.errors import BadParameter

#: Every file that is served, by its path: nothing else is ever read from the disk.
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

LOOK_EVERY, BEAT_EVERY = 0.25, 10.0
READERS = 32


def public_app(board: PublicBoard, *, hosts: Iterable[str], closing: Callable[[], bool] = lambda: False) -> ASGIApp:
    """The public face.

    Raises
    ------
    BadParameter
        If the board is any other than a `PublicBoard`, which is made of releases
        alone, or if its releases promise nothing. From now on it refuses such releases.
    """
    if type(board) is not PublicBoard:
        raise BadParameter(f"{type(board).__name__} may not be published; pass a PublicBoard")
    board.only_private()
    return Guard(_app(board, closing), hosts)


def curator_app(
    board: CuratorBoard, *, token: str, hosts: Iterable[str], closing: Callable[[], bool] = lambda: False
) -> ASGIApp:
    """The curator's face. Curator only: its data wants the token."""
    if len(token) < 16:
        raise BadParameter("the token is too short; use secrets.token_urlsafe()")
    return Guard(_app(board, closing), hosts, token)


@cache
def static(name: str) -> bytes:
    """A file of the page."""
    return files("streampca.dashboard").joinpath("static", name).read_bytes()


def _app(board: Board, closing: Callable[[], bool]) -> Starlette:
    readers = 0

    async def file(request: Request) -> Response:
        name, kind = STATIC[request.url.path]
        return Response(static(name), media_type=kind)

    async def state(_request: Request) -> Response:
        return JSONResponse(board.state())

    async def events(request: Request) -> Response:
        nonlocal readers
        if readers >= READERS:
            return PlainTextResponse("too many readers\n", 503, {"retry-after": "10"})

        async def stream() -> AsyncIterator[str]:
            nonlocal readers
            readers += 1
            try:
                async for message in _messages(board, request.headers.get("last-event-id"), closing):
                    yield message
            finally:
                readers -= 1

        return StreamingResponse(stream(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    routes = [Route(path, file) for path in STATIC]
    routes += [Route("/api/state", state), Route("/api/events", events)]
    return Starlette(routes=routes)


async def _messages(board: Board, cursor: str | None, closing: Callable[[], bool]) -> AsyncIterator[str]:
    """Server-sent events: what the reader lacks, whenever there is something new."""
    yield "retry: 1000\n\n"
    seen, beat = -1, time.monotonic()
    while not closing():
        stamp = board.stamp
        if stamp != seen:
            seen, beat = stamp, time.monotonic()
            kind, state, cursor = await asyncio.to_thread(board.since, cursor)
            data = json.dumps(state, allow_nan=False, separators=(",", ":"))
            yield f"event: {kind}\nid: {cursor}\ndata: {data}\n\n"
        elif time.monotonic() - beat > BEAT_EVERY:
            beat = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(LOOK_EVERY)
