"""State of a stream between two rows."""

from __future__ import annotations

from typing import NamedTuple

from streampca.errors import BadParameterError
from streampca.processors.base import Processor
from streampca.regret.private_regret import PrivateRegretRecords
from streampca.regret.regret import RegretSums
from streampca.release.release import Release
from streampca.release.scoring import Scoring
from streampca.rows.admission import NO_COUNTS, Admission, Counts


class State(NamedTuple):
    """State of a stream: an immutable value.

    Attributes
    ----------
    unit : row_norm**2.
    t : number of rows absorbed.
    due : number of rows that may be absorbed together, up to the next release or record.
    entries : number of entries of the commit log up to this state.
    """

    admission: Admission
    unit: float
    t: int = 0
    processor: Processor | None = None
    release: Release | None = None
    regret: RegretSums | None = None
    private: PrivateRegretRecords | None = None
    scoring: Scoring | None = None
    counts: Counts = NO_COUNTS
    due: int = 0
    entries: int = 0


def running(now: State) -> Processor:
    """Return the processor of a stream that has started."""
    if now.processor is None:
        raise BadParameterError("the stream has not started. Push a row first.")
    return now.processor
