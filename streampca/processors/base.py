"""What every algorithm and every processor is.

An *algorithm* is a frozen configuration of public parameters: `PrivateFPL(...)`.
It promises a guarantee, and starts processors. A *processor* is where one run
of it stands after t rows: an immutable value. `Processor.step` absorbs rows and
returns the processor after them; the one before stays as it was, so a step that
is broken off has changed nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from streampca.errors import BadParameter, BadRow, HorizonReached
from streampca.linalg.counts import check_components
from streampca.linalg.lattice import GramSum, is_admitted
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray, IntArray
from streampca.linalg.words import is_plausible
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import Chain, NoiseSource, Outlet
from streampca.privacy.randomness import Randomness
from streampca.release import Release, Terms


@dataclass(frozen=True, eq=False)
class Setting:
    """What a processor is told of the stream that it works for. Public.

    Attributes
    ----------
    terms : of the releases it makes.
    appended : features that were appended to the rows; the algorithm's ``n_features`` does not count them.
    label : further public parameters that noise must not be shared over.
    """

    terms: Terms
    appended: int = 0
    label: tuple[object, ...] = ()


class Algorithm(ABC):
    """A streaming algorithm: public parameters, fixed when it is made.

    Concrete algorithms are frozen dataclasses. One object can feed any number of streams.

    Attributes
    ----------
    n_components : dimension of the released subspaces.
    n_features : number of features, or None for that of the rows.
    seed : for tests and scenarios; see `streampca.Stream`.
    """

    n_components: int
    n_features: int | None
    seed: int | None

    # -- what an algorithm provides -------------------------------------------------

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What is promised for all releases together. Known before any row."""

    @abstractmethod
    def constants(self, n_features: int) -> tuple[object, ...]:
        """Every number the noise is made with: standard deviations, scales, mixes and rates.

        Two configurations that differ in one of them, by a bit, never share noise.
        """

    @abstractmethod
    def _begun(self, n_features: int, source: NoiseSource, terms: Terms) -> Processor:
        """The processor before the first row."""

    @abstractmethod
    def _continued(self, n_features: int, source: NoiseSource, terms: Terms, snapshot: Mapping[str, Any]) -> Processor:
        """The processor of a snapshot."""

    def check(self, n_features: int, *, appended: int = 0) -> None:
        """Raise `BadParameter` unless rows of so many features fit the parameters.

        Parameters
        ----------
        n_features : length of the admitted rows.
        appended : how many of these features were appended to the rows.
        """
        given = n_features - appended
        if self.n_features is not None and given != self.n_features:
            raise BadParameter(f"the algorithm was made for n_features={self.n_features}, the rows have {given}")
        check_components(self.n_components, given)

    @property
    def absorbs_grams(self) -> bool:
        """True if it needs no more of rows than their exact Gram matrix (`Processor.step_gram`)."""
        return False

    # -- what all share -------------------------------------------------------------

    def start(
        self,
        n_features: int,
        randomness: Randomness | None = None,
        setting: Setting | None = None,
        *,
        start: bytes | None = None,
        snapshot: Mapping[str, Any] | None = None,
    ) -> Processor:
        """A processor that has seen no row, or that of a snapshot.

        Parameters
        ----------
        n_features : length of the admitted rows.
        randomness : the key; fresh from the system if left out.
        setting : given by a stream.
        start : 16 bytes that name this start of a run; fresh if left out (with a seed, derived from it).
        snapshot : from `Processor.snapshot`, for the same parameters, randomness, setting and start.

        Raises
        ------
        BadParameter
            If the number of features does not fit the parameters.
        """
        randomness = randomness or Randomness()
        if setting is None:
            promised = self.guarantee
            setting = Setting(Terms(promised.seeded() if randomness.is_seeded else promised))
        self.check(n_features, appended=setting.appended)
        label = repr(self.unseeded()), n_features, self.constants(n_features), setting.label
        source = NoiseSource(randomness, *label, start=start)
        if snapshot is None:
            return self._begun(n_features, source, setting.terms)
        return self._continued(n_features, source, setting.terms, snapshot)

    def unseeded(self) -> Self:
        """The same algorithm without a seed."""
        return self if self.seed is None else replace(self, seed=None)  # type: ignore[type-var]

    def parameters(self) -> dict[str, Any]:
        """The parameters by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.init}  # type: ignore[arg-type]


class Processor(ABC):
    """Where a run of an algorithm stands after t rows: an immutable value. As secret as the rows.

    Attributes
    ----------
    algorithm : the configuration.
    n_features : length of the admitted rows.
    terms : of the releases.
    t : rows absorbed.
    source : the keys of the noise.
    chain : the chain value of the noise drawn so far.
    """

    __slots__ = ("algorithm", "chain", "n_features", "source", "t", "terms")

    def __init__(
        self, algorithm: Algorithm, n_features: int, source: NoiseSource, terms: Terms, chain: Chain, t: int
    ) -> None:
        self.algorithm = algorithm
        self.n_features = n_features
        self.source = source
        self.terms = terms
        self.chain = chain
        self.t = t

    # -- what a processor provides --------------------------------------------------

    @property
    @abstractmethod
    def rows_until_release(self) -> int:
        """How many rows may be absorbed before the next release; 0 once the horizon is reached."""

    @abstractmethod
    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[Processor, Release | None]:
        """Absorb rows that were admitted; return the processor after them, and a release if one is due.

        Parameters
        ----------
        rows : (n, n_features) array from `Admission`, with 1 <= n <= `rows_until_release`.
        outlet : made by `outlet`, used for this step alone.
        """

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Plain values and arrays from which `Algorithm.start` makes the same processor. As secret as the rows.

        Arrays are not copied: nothing may write to them.
        """

    def step_gram(self, count: int, high: IntArray, low: IntArray, outlet: Outlet) -> tuple[Processor, Release | None]:
        """`step` of admitted rows of which only the exact packed Gram matrix is known: the same release, bit for bit.

        Only where ``algorithm.absorbs_grams``.
        """
        raise self._needs_rows()

    def finish(self, outlet: Outlet) -> tuple[Processor, Release | None]:
        """End the stream; release what is still held, where that is the public choice."""
        return self, None

    @property
    def rows_left(self) -> int | None:
        """Rows until the horizon; None if endless."""
        horizon: int | None = getattr(self.algorithm, "horizon", None)
        return None if horizon is None else horizon - self.t

    def regret_bound(self, t: int, opt: float) -> float:
        """Bound on the expected regret after t rows of a stream fixed in advance.

        ``opt`` is the best reward in hindsight, and the trivial bound: rewards are not negative.
        """
        return opt

    def curator_gram(self) -> GramSum | None:
        """The exact Gram matrix of all rows absorbed, if the processor keeps one. Curator only."""
        return None

    # -- what all share -------------------------------------------------------------

    @property
    def n_components(self) -> int:
        """Dimension of the released subspaces."""
        return self.algorithm.n_components

    @property
    def guarantee(self) -> Guarantee:
        """What is promised for all releases together."""
        return self.terms.guarantee

    def outlet(self, recorded: Sequence[bytes] | None = None) -> Outlet:
        """The outlet of the next step; ``recorded`` are the fresh bytes of a replay."""
        return Outlet(self.source, self.chain, recorded)

    def absorb(self, rows: FloatArray, outlet: Outlet | None = None) -> tuple[Processor, Release | None]:
        """`step` for rows from anywhere: it checks them first.

        Raises
        ------
        BadParameter
            If the block is of the wrong shape or too long.
        BadRow
            If a row was not admitted: privacy never rests on the caller's care.
        HorizonReached
            If the processor can take no more rows.
        """
        if rows.ndim != 2 or rows.shape[1] != self.n_features or rows.shape[0] < 1:
            raise BadParameter(f"rows of shape {rows.shape} given; (n, {self.n_features}) with n >= 1 expected")
        self._check_room(rows.shape[0])
        if not is_admitted(rows):
            raise BadRow(
                "a row is outside the unit ball or off the lattice; pass rows through Stream, "
                "or through streampca.linalg.lattice.onto_ball"
            )
        return self.step(rows, outlet or self.outlet())

    def absorb_gram(
        self, count: int, high: IntArray, low: IntArray, outlet: Outlet | None = None
    ) -> tuple[Processor, Release | None]:
        """`step_gram` for blocks from anywhere: it checks them first.

        Parameters
        ----------
        count : how many rows, with 1 <= count <= `rows_until_release`.
        high, low : the sum of their squares as `linalg.lattice.GramSum.words` gives it.

        Raises
        ------
        BadParameter
            If the algorithm needs the rows themselves, or the block is of the wrong shape or too long.
        BadRow
            If the squared norms add up to more than one a row, or one entry's to less than nothing.
            Whether each row was admitted cannot be told from the sum: who makes blocks is trusted with that.
        HorizonReached
            If the processor can take no more rows.
        """
        if not self.algorithm.absorbs_grams:
            raise self._needs_rows()
        size = svec_size(self.n_features)
        if high.shape != (size,) or low.shape != (size,) or count < 1:
            raise BadParameter(
                f"{count} rows in words of shapes {high.shape} and {low.shape} given; rows and shape ({size},) expected"
            )
        self._check_room(count)
        if not is_plausible((high, low), count, self.n_features):
            raise BadRow(f"this is no Gram matrix of {count} rows of the unit ball; make blocks with BlockGram.of")
        return self.step_gram(count, high, low, outlet or self.outlet())

    def _needs_rows(self) -> BadParameter:
        return BadParameter(f"{self.algorithm!r} needs rows, not Gram matrices of blocks; use PrivateFPL, or push rows")

    def _check_room(self, count: int) -> None:
        due = self.rows_until_release
        if due == 0:
            raise HorizonReached(
                f"the horizon of {self.t} rows is reached: noise is calibrated for no more; "
                "use horizon=None for a stream of unknown length"
            )
        if count > due:
            raise BadParameter(f"{count} rows given, but a release is due after {due}; split the block")

    def __repr__(self) -> str:
        return f"<processor of {self.algorithm!r} after {self.t} rows>"


def chain_snapshot(chain: Chain) -> dict[str, Any]:
    """A chain value as plain values. As secret as the key."""
    return {"n": chain.n, "link": chain.link.hex()}


def chain_restored(snapshot: Mapping[str, Any]) -> Chain:
    """Inverse of `chain_snapshot`."""
    return Chain(int(snapshot["n"]), bytes.fromhex(snapshot["link"]))
