"""The account that pays for the streams of a foreign estimator, which gets cloned, copied and pickled."""

from __future__ import annotations

from os import PathLike, fspath

from streampca.errors import BadParameter
from streampca.privacy.guarantee import Guarantee


class LedgerFile:
    """A data set's account in a ledger file: a path, so that it survives clones, pickles and worker processes.

    Parameters
    ----------
    path : a ledger file that exists; see `streampca.store.ledger.Ledger`.
    data_set : whose budget pays.
    """

    def __init__(self, path: str | PathLike[str], data_set: str) -> None:
        self.path, self.data_set = fspath(path), data_set

    def debit(self, guarantee: Guarantee, start: bytes) -> None:
        """Book one start of a stream; see `streampca.stream.Account`."""
        from streampca.store.ledger import Ledger  # for those only who keep one

        with Ledger.existing(self.path) as ledger:
            ledger.account(self.data_set).debit(guarantee, start)


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
