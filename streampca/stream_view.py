"""What can be read off a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod

from streampca.admission import Admission
from streampca.errors import BadParameter
from streampca.journal import Journal
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import Randomness
from streampca.private_regret import PrivateRegret
from streampca.processors.base import Processor
from streampca.regret import RegretLog
from streampca.release import Release, Subspace


class StreamView(ABC):
    """The readable side of a `streampca.Stream`."""

    _processor: Processor
    _gate: Admission
    _randomness: Randomness
    _log: RegretLog | None
    _private_log: PrivateRegret | None
    _release: Release | None
    _journal: Journal | None
    _waiting: int

    @abstractmethod
    def _settle(self) -> None:
        """Absorb the rows that wait."""

    @property
    def t(self) -> int:
        """Rows seen."""
        return self._processor.t + self._waiting

    @property
    def processor(self) -> Processor:
        """The algorithm at work."""
        self._settle()
        return self._processor

    @property
    def features(self) -> tuple[str, ...] | None:
        """Names of the features, if rows are named."""
        return self._gate.features

    @property
    def row_norm(self) -> float:
        """Norm onto which longer rows are scaled."""
        return self._gate.row_norm

    @property
    def guarantee(self) -> Guarantee:
        """What is promised for all releases of this stream together."""
        promised = self._processor.guarantee
        return promised.seeded() if self._randomness.is_seeded else promised

    @property
    def release(self) -> Release | None:
        """The latest release, or None before the first."""
        self._hold()
        return self._release

    @property
    def subspace(self) -> Subspace:
        """The subspace in play: of the latest release, or the first coordinate axes before it."""
        self._hold()
        return self._playing()

    def _hold(self) -> None:
        """Absorb the rows that wait; hand nothing out before those it depends on are durable."""
        self._settle()
        if self._journal is not None and self._release is not None:
            self._journal.wait_for(self._release.t)

    def _playing(self) -> Subspace:
        if self._release is not None:
            return self._release.subspace
        if self._gate.n_features is None:
            raise BadParameter("the number of features is not known yet; push a row, or give n_features=")
        return Subspace.first_axes(self._gate.n_features, self._processor.n_components)

    @property
    def regret(self) -> RegretLog:
        """The exact regret log. Curator only."""
        if self._log is None:
            raise BadParameter("this stream keeps no regret; leave out regret=None")
        self._settle()
        return self._log

    @property
    def private_regret(self) -> PrivateRegret:
        """The publishable regret: intervals, under the guarantee of the releases."""
        if self._private_log is None:
            raise BadParameter("this stream releases no rewards; use PrivateFPL(..., publish_regret=True)")
        return self._private_log

    @property
    def publishes_regret(self) -> bool:
        """True if the processor releases rewards, so that there is a `private_regret`."""
        return self._private_log is not None

    @property
    def keeps_regret(self) -> bool:
        """False if the stream was made with ``regret=None``."""
        return self._log is not None

    @property
    def bad_rows(self) -> int:
        """Rows absorbed as zero rows because they were bad. Curator only: it depends on raw rows."""
        self._settle()
        return self._gate.bad_rows
