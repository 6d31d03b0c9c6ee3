"""Who may ask what of the page, and the headers that every answer carries.

A local server is reached by every page that the same browser has open. So:
the Host header must name this server (DNS rebinding), the Origin and
Sec-Fetch-Site headers must not name another site, only GET and HEAD without a
body are answered, and the curator's data wants a token that is sent in a
header, which no other page can add. Cookies are not used: browsers send them
to every port of a host.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LONGEST_PATH, _LONGEST_HEADERS = 128, 16384
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", _CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"cache-control", b"no-store"),
)


class Guard:
    """Refuses what does not come from the page itself.

    Parameters
    ----------
    app : what is guarded.
    hosts : values of the Host header that name this server, in lower case.
    token : wanted as ``Authorization: Bearer TOKEN`` under ``/api/``; None wants none.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], token: str | None = None) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # no websockets

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name for name, _ in message.get("headers", ())}
                extra = [(name, value) for name, value in HEADERS if name not in known]
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            await send(message)

        refused = self._refuse(scope)
        await (refused or self._app)(scope, receive, guarded)

    def _refuse(self, scope: Scope) -> PlainTextResponse | None:
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        if sum(len(name) + len(value) for name, value in scope["headers"]) > _LONGEST_HEADERS:
            return PlainTextResponse("too much is asked\n", 431)
        if len(scope.get("raw_path") or scope["path"].encode()) > _LONGEST_PATH or scope["query_string"]:
            return PlainTextResponse("there is no such page\n", 404)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("only GET is answered\n", 405, {"allow": "GET, HEAD"})
        if headers.get(b"content-length", [b"0"]) != [b"0"] or b"transfer-encoding" in headers:
            return PlainTextResponse("no body is taken\n", 413)
        host = headers.get(b"host", [])
        if len(host) != 1 or host[0].decode("latin-1").lower() not in self._hosts:
            return PlainTextResponse("this server goes by another name\n", 421)
        for origin in headers.get(b"origin", []):
            scheme, _, name = origin.decode("latin-1").lower().partition("://")
            if scheme not in ("http", "https") or name not in self._hosts:
                return PlainTextResponse("other sites may not ask\n", 403)
        if headers.get(b"sec-fetch-site", [b"none"])[0] not in (b"none", b"same-origin") and not _is_visit(headers):
            return PlainTextResponse("other sites may not ask\n", 403)
        if self._token is not None and scope["path"].startswith("/api"):
            given = headers.get(b"authorization", [])
            if len(given) != 1 or not hmac.compare_digest(given[0], b"Bearer " + self._token.encode()):
                return PlainTextResponse("the token is missing or wrong\n", 401, {"www-authenticate": "Bearer"})
        return None


def _is_visit(headers: dict[bytes, list[bytes]]) -> bool:
    """True if somebody follows a link to the page."""
    return headers.get(b"sec-fetch-mode") == [b"navigate"] and headers.get(b"sec-fetch-dest") == [b"document"]
