"""A stream on behalf of a foreign estimator, which gets cloned, copied and pickled."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

from streampca.admission import Bounds, OnBadRow
from streampca.errors import BadParameter
from streampca.integrations._continued import forked, parts_of
from streampca.privacy.guarantee import Guarantee
from streampca.processors.base import Processor
from streampca.processors.private_oja import PrivateOja
from streampca.stream import Stream


class LedgerFile:
    """A data set's account in a ledger file: a path, so that it survives clones, pickles and worker processes.

    Parameters
    ----------
    path : a ledger file that exists; see `streampca.store.ledger.Ledger`.
    data_set : whose budget pays.
    """

    def __init__(self, path: str | PathLike[str], data_set: str) -> None:
        self.path, self.data_set = fspath(path), data_set

    def debit(self, guarantee: Guarantee) -> None:
        """Book a stream before its first row."""
        from streampca.store.ledger import Ledger  # for those only who keep one

        with Ledger.existing(self.path) as ledger:
            ledger.debit(self.data_set, guarantee)


def account(ledger: str | PathLike[str] | None, data_set: str | None) -> LedgerFile | None:
    """The account that two parameters of an estimator name, or None.

    Raises
    ------
    BadParameter
        If only one of them is given.
    """
    if (ledger is None) != (data_set is None):
        raise BadParameter(
            f"ledger={ledger!r}, data_set={data_set!r}: give the path of a ledger and the name of the data set, "
            "or neither"
        )
    return None if ledger is None or data_set is None else LedgerFile(ledger, data_set)


class Session:
    """A running stream that can be copied. Curator only: as secret as the rows.

    A copy (``copy.deepcopy``, ``pickle``) goes on from the same rows with noise of
    its own, unless it is seeded (`_continued`). Two copies that both go on on the
    same rows cost what two runs cost.

    Parameters
    ----------
    processor : a fresh processor.
    n_features, features : how many features rows have, and their names if they have any.
    row_norm, bounds, on_bad_row, center, seed, ledger : see `Stream`.
    """

    def __init__(
        self,
        processor: Processor,
        *,
        n_features: int,
        features: tuple[str, ...] | None = None,
        row_norm: float = 1.0,
        bounds: Bounds | None = None,
        on_bad_row: OnBadRow = "raise",
        center: bool = False,
        seed: int | None = None,
        ledger: LedgerFile | None = None,
    ) -> None:
        self._options: dict[str, Any] = {
            "row_norm": row_norm, "bounds": bounds, "on_bad_row": on_bad_row, "center": center, "seed": seed,
            "ledger": ledger,
        }  # fmt: skip
        self._shape = n_features, features
        self._seeded = seed is not None
        self.stream = self._made(processor)
        self.stream._start()

    def _made(self, processor: Processor) -> Stream:
        stream = Stream(processor, regret=None, **self._options)
        n_features, features = self._shape
        stream._gate.fix(features, n_features)
        return stream

    def __getstate__(self) -> dict[str, Any]:
        processor = self.stream.processor  # settles the rows that wait
        return {
            "kind": type(processor),
            "parameters": {**processor.parameters(), "n_features": None},
            "options": self._options | {"ledger": self.stream._ledger},
            "shape": self._shape,
            "state": processor.state(),
            "bad_rows": self.stream._gate.bad_rows,
            "release": self.stream._release,
            "keys": None if self._seeded else parts_of(self.stream._randomness),
        }

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self._options, self._shape = saved["options"], saved["shape"]
        self._seeded = saved["keys"] is None
        self.stream = stream = self._made(saved["kind"](**saved["parameters"]))
        if not self._seeded:
            stream._randomness = forked(saved["keys"], _next_draw(saved["kind"], saved["state"]))
        stream._start()
        stream._processor.restore(saved["state"])
        stream._gate.bad_rows = saved["bad_rows"]
        stream._release = saved["release"]


def _next_draw(kind: type[Processor], state: dict[str, Any]) -> int:
    """The first index of a draw that is in no release yet."""
    if issubclass(kind, PrivateOja):
        return int(state["steps"])
    noise = state["engine"]["noise"] if "engine" in state else state["noise"]
    return int(noise["n"]) + 1
