"""A card in a notebook that shows a stream while it absorbs rows. Needs IPython."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any, Self

from streampca.errors import BadParameterError, UsageError
from streampca.stream.stream import Stream
from streampca.views.card import card, stream_html
from streampca.views.facts import Looks


class Watch:
    """A card in a notebook, updated while a ``with`` block runs, or while rows are iterated.

    Parameters
    ----------
    stream : the stream to show.
    rows : rows as for `Stream.run`; iteration yields its steps.
    every : seconds between two updates.
    total : expected number of rows, for the progress bar; by default the length of ``rows``, if it has one.
    public : show the latest release only. Otherwise the card holds the exact regret and is for the curator.
    """

    def __init__(
        self, stream: Stream, rows: Any = None, *, every: float = 1.0, total: int | None = None, public: bool = False
    ) -> None:
        if not (isinstance(every, (int, float)) and every > 0.0):
            raise BadParameterError("every", every, "a positive number of seconds")
        if total is None and hasattr(rows, "__len__"):
            total = stream.t + len(rows)
        self._stream, self._rows = stream, rows
        self._every, self._total, self._public = every, total, public
        self._first, self._since = stream.t, time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._handle: Any = None
        self._looks = Looks()

    def html(self) -> str:
        """Return the current card."""
        # The row number and the release may be of two moments: a push may happen between. Each is right by itself.
        t, release = self._stream.t, self._stream.release
        shown: str | None = "<p>Nothing has been released yet.</p>"
        if release is not None:
            self._looks.see(release)
            if self._ended.is_set():
                self._looks.last(release)
            marks = self._looks.marks
            shown = card(release, marks=marks).html() if self._public else stream_html(self._stream, marks)
        count, bar = f"{t:,}", ""
        if self._total is not None:
            count, bar = f"{t:,} of {self._total:,}", f"<progress max='{max(1, self._total)}' value='{t}'></progress> "
        seconds = time.monotonic() - self._since
        rate = f", {(t - self._first) / seconds:,.0f} rows a second" if seconds > 0.0 and t > self._first else ""
        return f"<div><p>{bar}{count} rows{rate}</p>{shown or ''}</div>"

    def __enter__(self) -> Self:
        try:
            from IPython.display import HTML, display
        except ImportError:
            raise UsageError("watch needs IPython: pip install jupyter, or use print(stream)") from None
        self._first, self._since = self._stream.t, time.monotonic()
        self._show = HTML
        self._handle = display(HTML(self.html()), display_id=True)
        self._ended.clear()
        self._thread = threading.Thread(target=self._follow, name="streampca-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._handle.update(self._show(self.html()))

    def __iter__(self) -> Iterator[Any]:
        if self._rows is None:
            raise UsageError("there are no rows to run; call watch(rows), or use it in a with statement")
        with self:
            yield from self._stream.run(self._rows)

    def _follow(self) -> None:
        # `wait` returns early when the block ends, so that leaving it never takes ``every`` seconds.
        while not self._ended.wait(self._every):
            self._handle.update(self._show(self.html()))
