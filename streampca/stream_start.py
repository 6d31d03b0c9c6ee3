"""How a stream begins: features are settled, the account pays, the processor is bound."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streampca.errors import HorizonReached, StreamPCAError
from streampca.journal import Account, Journal
from streampca.linalg.svec import svec_size
from streampca.rows import RowSource
from streampca.stream_view import StreamView

#: Most numbers in the releases that single rows make before they are absorbed.
_WAITING_NUMBERS = 2**18


class StreamStart(StreamView):
    """The side of a `streampca.Stream` that is done once."""

    _ledger: Account | None
    _started: bool
    _few: int

    def adopt(self, source: RowSource) -> None:
        """Take feature names and public bounds over from a source, where the stream has none."""
        if source.bounds is not None:
            self._gate.give_bounds(source.bounds)
        if source.features and self._gate.features is None:
            self._gate.fix(source.features)

    def _attach(self, journal: Journal) -> None:
        """Keep a journal from here on."""
        self._journal = journal

    @contextmanager
    def _first_row(self) -> Iterator[None]:
        """Let a bad first row leave no trace: the features it would have fixed are forgotten."""
        before = self._gate.n_features, self._gate.features
        try:
            yield
        except StreamPCAError:
            if not self._started:
                self._gate.n_features, self._gate.features = before
            raise

    def _pay(self, count: int) -> None:
        """Have the whole stream booked before its first row, unless that row will be refused."""
        left = self._processor.rows_left
        if self._ledger is not None and (left is None or count <= left):
            self._ledger.debit(self.guarantee)
            self._ledger = None

    def _start(self) -> None:
        if not self._started:
            assert self._gate.admitted_features is not None
            self._processor.bind(self._gate.admitted_features, self._randomness, constants=int(self._gate.center))
            if self._log is not None:
                self._log.start(self._processor, self._playing, self.row_norm, self._settle)
            # So many rows may wait past releases that these hold some 2 MB.
            self._few = _WAITING_NUMBERS // svec_size(self._gate.admitted_features)
            self._started = True

    def _past_horizon(self, count: int, left: int) -> HorizonReached:
        return HorizonReached(
            f"{count} rows given, but the horizon of {self._processor.t + left} rows leaves room for {left}: noise is "
            "calibrated for no more; use horizon=None for a stream of unknown length"
        )
