"""What every processor is."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np

from streampca.errors import BadParameter, BadRow, HorizonReached
from streampca.linalg.lattice import is_admitted
from streampca.linalg.svec import svec_size
from streampca.linalg.threads import one_blas_thread
from streampca.linalg.types import FloatArray, IntArray
from streampca.linalg.words import is_plausible
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import Randomness
from streampca.release import Release


class Processor(ABC):
    """A streaming algorithm: rows in, releases out.

    A processor is configured by keywords that it stores under the same names,
    is handed its number of features and its randomness once (`bind`), and
    then absorbs admitted rows. It never sees a file, a clock or a regret.

    Attributes
    ----------
    n_features : number of features, or None until `bind`.
    n_components : dimension of the released subspaces.
    t : rows absorbed.
    absorbs_grams : True if it needs no more of rows than their exact Gram matrix (`absorb_gram`).
    """

    n_features: int | None
    n_components: int
    t: int = 0
    absorbs_grams: bool = False
    _bound: bool = False

    # -- what an algorithm provides -------------------------------------------------

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What is promised for all releases together. Known before any row."""

    @property
    @abstractmethod
    def rows_until_release(self) -> int:
        """How many rows may be absorbed before the next release; 0 once the horizon is reached."""

    @property
    def rows_left(self) -> int | None:
        """How many more rows may be absorbed; None if endless."""
        return None

    def regret_bound(self, t: int, opt: float) -> float:
        """Bound on the expected regret after t rows of a stream fixed in advance.

        ``opt`` is the best reward in hindsight, and the trivial bound: rewards are not negative.
        """
        return opt

    @abstractmethod
    def _start(self, n_features: int, randomness: Randomness) -> None:
        """Allocate state for rows of ``n_features`` numbers."""

    @abstractmethod
    def _absorb(self, rows: FloatArray) -> Release | None:
        """Absorb admitted rows (at most `rows_until_release`); ``self.t`` already counts them."""

    def _absorb_gram(self, high: IntArray, low: IntArray) -> Release | None:
        """Absorb admitted rows of which only the exact packed Gram matrix is known."""
        raise NotImplementedError

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues. As secret as the rows."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`, on a processor of the same parameters, bound with the same key."""

    def finish(self) -> Release | None:
        """End the stream; release what is still held, where that is the public choice."""
        return None

    def curator_gram(self) -> FloatArray | None:
        """The exact Gram matrix of all rows absorbed, packed, if the processor keeps one. Curator only."""
        return None

    # -- what all share -------------------------------------------------------------

    def bind(self, n_features: int, randomness: Randomness, *, constants: int = 0) -> None:
        """Fix the number of features and hand over the randomness. Once.

        ``constants`` of the features were appended to the rows and are not
        counted in the parameter ``n_features``.

        Raises
        ------
        BadParameter
            If the processor was bound before, or the number of features does
            not fit its parameters.
        """
        if self._bound:
            raise BadParameter("this processor already feeds a stream; give the other one processor.clone()")
        given = n_features - constants
        if self.n_features is not None and given != self.n_features:
            raise BadParameter(f"the processor was made for n_features={self.n_features}, the rows have {given}")
        check_components(self.n_components, given)
        one_blas_thread()
        self._start(n_features, randomness)
        self._given_n_features = self.n_features
        self.n_features = n_features
        self._bound = True

    def absorb(self, rows: FloatArray) -> Release | None:
        """Absorb admitted rows; return a release if one is due.

        Parameters
        ----------
        rows : (n, n_features) array from the admission gate (on the lattice,
            norms at most 1), with 1 <= n <= `rows_until_release`.

        Raises
        ------
        BadParameter
            If the processor is not bound, or the block is of the wrong shape or too long.
        BadRow
            If a row was not admitted: privacy never rests on the caller's care.
        HorizonReached
            If the processor can take no more rows. Nothing has changed.
        """
        if not self._bound:
            raise BadParameter("the processor is not bound to a stream yet; use Stream(processor)")
        if rows.ndim != 2 or rows.shape[1] != self.n_features or rows.shape[0] < 1:
            raise BadParameter(f"rows of shape {rows.shape} given; (n, {self.n_features}) with n >= 1 expected")
        self._check_room(rows.shape[0])
        if not is_admitted(rows):
            raise BadRow(
                "a row is outside the unit ball or off the lattice; pass rows through Stream, "
                "or through streampca.linalg.lattice.onto_ball"
            )
        self.t += rows.shape[0]
        return self._absorb(rows)

    def absorb_many(self, rows: FloatArray) -> list[Release]:
        """Absorb admitted rows past any number of releases; return those that were due, in order.

        For the stream, which has just admitted them: rows from elsewhere go through `absorb`, which checks.

        Parameters
        ----------
        rows : (n, n_features) array as for `absorb`, with 1 <= n <= `rows_left`.
        """
        count, start = rows.shape[0], 0
        releases = []
        while start < count:
            take = min(count - start, self.rows_until_release)
            self.t += take
            release = self._absorb(rows[start : start + take])
            if release is not None:
                releases.append(release)
            start += take
        return releases

    def absorb_gram(self, count: int, high: IntArray, low: IntArray) -> Release | None:
        """Absorb admitted rows by their exact packed Gram matrix; return a release if one is due.

        The same release as `absorb` of the rows, bit for bit.

        Parameters
        ----------
        count : how many rows, with 1 <= count <= `rows_until_release`.
        high, low : the sum of their squares as `linalg.lattice.GramAccumulator.words` gives it.

        Raises
        ------
        BadParameter
            If the algorithm needs the rows themselves, it is not bound, or the
            block is of the wrong shape or too long.
        BadRow
            If the squared norms add up to more than one a row, or one entry's to less than nothing.
            Whether each row was admitted cannot be told from the sum: who makes blocks is trusted with that.
        HorizonReached
            If the processor can take no more rows. Nothing has changed.
        """
        if not self.absorbs_grams:
            raise BadParameter(f"{self!r} needs rows, not Gram matrices of blocks; use PrivateFPL, or push rows")
        if not self._bound:
            raise BadParameter("the processor is not bound to a stream yet; use Stream(processor)")
        size = svec_size(self.n_features or 0)
        if high.shape != (size,) or low.shape != (size,) or count < 1:
            raise BadParameter(
                f"{count} rows in words of shapes {high.shape} and {low.shape} given; rows and shape ({size},) expected"
            )
        self._check_room(count)
        if not is_plausible((high, low), count, self.n_features or 0):
            raise BadRow(f"this is no Gram matrix of {count} rows of the unit ball; make blocks with BlockGram.of")
        self.t += count
        return self._absorb_gram(high, low)

    def _check_room(self, count: int) -> None:
        due = self.rows_until_release
        if due == 0:
            raise HorizonReached(
                f"the horizon of {self.t} rows is reached: noise is calibrated for no more; "
                "use horizon=None for a stream of unknown length"
            )
        if count > due:
            raise BadParameter(f"{count} rows given, but a release is due after {due}; split the block")

    def parameters(self) -> dict[str, Any]:
        """The keywords this processor was made with."""
        names = inspect.signature(type(self).__init__).parameters
        return {name: getattr(self, f"_given_{name}", getattr(self, name)) for name in names if name != "self"}

    def clone(self) -> Self:
        """A fresh processor with the same parameters and no rows."""
        return type(self)(**self.parameters())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.parameters().items())})"


def check_components(n_components: int, n_features: int | None) -> None:
    """Raise `BadParameter` unless 1 <= n_components <= n_features."""
    check_count("n_components", n_components)
    if n_features is not None:
        check_count("n_features", n_features)
        if n_components > n_features:
            raise BadParameter(f"n_components={n_components} exceeds n_features={n_features}; ask for fewer components")


def check_count(name: str, value: object, *, optional: bool = False) -> None:
    """Raise `BadParameter` unless the value is an integer of at least 1 (or None, if optional)."""
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise BadParameter(f"{name}={value!r} must be an integer of at least 1{' or None' if optional else ''}")
