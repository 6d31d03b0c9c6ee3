"""The connections of the web server: how long each may be idle, and how many there may be.

A server that faces strangers closes connections that ask nothing, that ask slowly and that do not read the answer.
When all sockets are in use, the address that holds most of them gives one up, so one address cannot shut the page for
others. Many addresses together need a reverse proxy.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds until a request must be complete, and until the reader of an answer must continue to read.
REQUEST_SECONDS, READ_SECONDS = 10.0, 30.0
#: Files that are reserved for the run itself: files, stores, standard streams.
_RESERVED = 64


def most_connections() -> int:
    """Number of connections held at a time: half of the files that this process may open, at most 1024."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    allowed = 1024 if limit == resource.RLIM_INFINITY else (limit - _RESERVED) // 2
    return max(8, min(1024, allowed))


class Connection(H11Protocol):
    """One HTTP connection with deadlines, which gives way when its address holds more than others do."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self.since = time.monotonic()

    @property
    def is_answering(self) -> bool:
        """True while a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peers = [other for other in self.connections if isinstance(other, Connection)]
        if len(peers) > most_connections():
            # The address with most connections gives up its oldest idle one, else its oldest one.
            address = Counter(other.client and other.client[0] for other in peers).most_common(1)[0][0]
            rivals = (other for other in peers if (other.client and other.client[0]) == address)
            rival = min(rivals, key=lambda other: (other.is_answering, other.since))
            self.connections.discard(rival)
            rival.transport.abort()
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        # The deadline of an incomplete request does not move when a part of it arrives.
        super().data_received(data)
        self._expect_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._deadline, self._unread):
            if timer is not None:
                timer.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        super().resume_writing()

    def _expect_request(self) -> None:
        if self.is_answering:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)
