"""Base classes of algorithms and processors.

An *algorithm* is a frozen configuration of public parameters: `PrivateFPL(...)`.
It has a guarantee, and starts processors. A *processor* is the state of one run
after t rows: an immutable value. `Processor.step` absorbs rows and returns the
processor after them; the one before does not change, so an interrupted step has
no effect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, ClassVar, Self

from streampca.errors import BadParameterError, BadRowError, HorizonReachedError
from streampca.linalg.centering import CONSTANT
from streampca.linalg.counts import check_components
from streampca.linalg.lattice import GramSum, check_memory, is_admitted, is_plausible
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray, IntArray
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import Chain, NoiseSource, Outlet
from streampca.privacy.randomness import Randomness
from streampca.release.release import Release, Terms
from streampca.state import State, fields_of, label_of, repr_of


@dataclass(frozen=True, eq=False)
class Setting:
    """Public settings of a stream that its processor depends on.

    Attributes
    ----------
    terms : of the releases it makes.
    label : further public parameters; runs that differ in one of them have independent noise.
    """

    terms: Terms
    label: tuple[object, ...] = ()


class Algorithm(ABC):
    """A streaming algorithm: public parameters, fixed when it is made.

    Concrete algorithms are frozen dataclasses. One object can feed any number of streams.

    Attributes
    ----------
    n_components : dimension of the released subspaces.
    n_features : number of features, or None for that of the rows.
    center : whether it releases Gram matrices about the mean. Its processors then take rows with a constant
        appended (`linalg.centering`), which ``n_features`` does not count.
    """

    n_components: int
    n_features: int | None
    center: bool = False

    # -- what an algorithm provides -------------------------------------------------

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """The guarantee of all releases together. Known before any row."""

    def guarantee_for(self, n_features: int) -> Guarantee:
        """The guarantee of all releases of rows with so many features."""
        return self.guarantee

    @abstractmethod
    def constants(self, n_features: int) -> tuple[object, ...]:
        """Every number that the noise depends on: standard deviations, scales, mixes and rates.

        They are part of the label of the noise: configurations that differ in one bit have independent noise.
        """

    @abstractmethod
    def _begun(self, n_features: int, source: NoiseSource, terms: Terms) -> Processor:
        """The processor before the first row."""

    @property
    def square_bytes(self) -> float:
        """Bytes that (d, d) matrices take at the peak, over d**2 (measured); 0 if there are none."""
        return 0.0

    def check(self, n_features: int) -> None:
        """Raise `BadParameterError` unless rows of so many features fit the parameters and the memory."""
        check_memory(n_features, self.square_bytes)
        if self.n_features is not None and n_features != self.n_features:
            raise BadParameterError(
                f"the algorithm was made for n_features={self.n_features}, the rows have {n_features}"
            )
        check_components(self.n_components, n_features)

    def centered(self) -> Self:
        """The same algorithm with ``center=True``.

        Raises
        ------
        BadParameterError
            If it releases no Gram matrix.
        """
        if "center" not in self.parameters():
            raise BadParameterError(
                f"center=True needs an algorithm that releases Gram matrices with Gaussian noise, such as PrivateFPL; "
                f"{type(self).__name__} does not"
            )
        return self if self.center else replace(self, center=True)  # type: ignore[type-var]

    @property
    def can_center(self) -> bool:
        """True if `centered` does not refuse."""
        try:
            return self.centered().center
        except BadParameterError:
            return False

    @property
    def absorbs_grams(self) -> bool:
        """True if it uses the rows' exact Gram matrix only (`Processor.step_gram`)."""
        return False

    # -- what all share -------------------------------------------------------------

    def __repr__(self) -> str:
        return repr_of(self) if is_dataclass(self) else super().__repr__()

    def check_blocks(self) -> None:
        """Raise `BadParameterError` unless the algorithm absorbs Gram matrices of blocks."""
        if not self.absorbs_grams:
            raise BadParameterError(
                f"{type(self).__name__} with these parameters needs rows, not Gram matrices of blocks; "
                "use PrivateFPL without publish_regret= and max_rows_per_user=, or push rows"
            )

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
        n_features : length of the admitted rows, with the constant if ``center``.
        randomness : the key; fresh from the system if left out.
        setting : given by a stream.
        start : 16 bytes that name this start of a run; fresh if left out (with a seed, derived from it).
        snapshot : from `Processor.snapshot`, for the same parameters, randomness, setting and start.

        Raises
        ------
        BadParameterError
            If the number of features does not fit the parameters.
        """
        randomness = randomness or Randomness()
        if setting is None:
            promised = self.guarantee_for(n_features - int(self.center))
            setting = Setting(Terms(promised.seeded() if randomness.is_seeded else promised))
        self.check(n_features - int(self.center))
        label = label_of(self), n_features, self.constants(n_features), setting.label
        source = NoiseSource(randomness, *label, start=start)
        begun = self._begun(n_features, source, setting.terms)
        return begun if snapshot is None else begun.restored(snapshot)

    def parameters(self) -> dict[str, Any]:
        """The parameters by name."""
        return fields_of(self)


class Processor(State, ABC):
    """State of a run of an algorithm after t rows: an immutable value. As secret as the rows.

    Attributes
    ----------
    algorithm : the configuration.
    n_features : length of the admitted rows, with the constant if ``algorithm.center``.
    terms : of the releases.
    t : rows absorbed.
    source : the keys of the noise.
    chain : the chain value of the noise drawn so far.
    """

    __slots__ = ("algorithm", "chain", "n_features", "source", "t", "terms")
    kept: ClassVar[tuple[str, ...]] = ("t", "chain")

    #: Names of the attributes that the class and its bases declare as ``__slots__``.
    slots: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.slots = tuple(name for base in cls.__mro__ for name in vars(base).get("__slots__", ()))

    def __init__(self, algorithm: Algorithm, n_features: int, source: NoiseSource, terms: Terms) -> None:
        self.algorithm = algorithm
        self.n_features = n_features
        self.source = source
        self.terms = terms
        self.chain: Chain = source.first
        self.t = 0

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

    def step_gram(self, count: int, high: IntArray, low: IntArray, outlet: Outlet) -> tuple[Processor, Release | None]:
        """`step` of admitted rows of which only the exact packed Gram matrix is known: the same release, bit for bit.

        Called only where ``algorithm.absorbs_grams``.
        """
        raise NotImplementedError

    def finish(self, outlet: Outlet) -> tuple[Processor, Release | None]:
        """End the stream; release the rows that are still held, if the parameters say so."""
        return self, None

    @property
    def rows_left(self) -> int | None:
        """Rows until the horizon; None if endless."""
        horizon: int | None = getattr(self.algorithm, "horizon", None)
        return None if horizon is None else horizon - self.t

    def regret_bound(self, t: int, opt: float) -> float | None:
        """Bound on the expected regret after t rows of a stream fixed in advance; None where none is proved.

        ``opt`` is the best reward in hindsight, and always a bound: rewards are not negative.
        """
        return None

    def curator_gram(self) -> GramSum | None:
        """The exact Gram matrix of all rows absorbed, if the processor keeps one. Curator only."""
        return None

    # -- what all share -------------------------------------------------------------

    def restored(self, snapshot: Mapping[str, Any], source: Any = None) -> Self:
        """See `State.restored`; the keys are those of this processor."""
        return self.after(**self.read(snapshot, self.source))

    def after(self, t: int, chain: Chain, **changes: Any) -> Self:
        """The processor after some rows: a copy with other values."""
        made = object.__new__(type(self))
        for name in self.slots:  # this runs once a release: `copy.copy` takes twice as long
            setattr(made, name, getattr(self, name))
        if hasattr(self, "__dict__"):
            made.__dict__.update(self.__dict__)
        made.t, made.chain = t, chain
        for name, value in changes.items():
            setattr(made, name, value)
        return made

    @property
    def n_components(self) -> int:
        """Dimension of the released subspaces."""
        return self.algorithm.n_components

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all releases together."""
        return self.terms.guarantee

    def outlet(self, recorded: Sequence[bytes] | None = None) -> Outlet:
        """The outlet of the next step; ``recorded`` are the fresh bytes of a replay."""
        return Outlet(self.source, self.chain, recorded)

    def absorb(self, rows: FloatArray, outlet: Outlet | None = None) -> tuple[Processor, Release | None]:
        """`step`, with a check of the rows first.

        Raises
        ------
        BadParameterError
            If the block is of the wrong shape or too long.
        BadRowError
            If a row was not admitted. Privacy does not depend on the caller.
        HorizonReachedError
            If the processor can take no more rows.
        """
        if rows.ndim != 2 or rows.shape[1] != self.n_features or rows.shape[0] < 1:
            raise BadParameterError(f"rows of shape {rows.shape} given; (n, {self.n_features}) with n >= 1 expected")
        self.check_room(rows.shape[0])
        center = self.algorithm.center
        if not is_admitted(rows[:, :-1] if center else rows) or (center and (rows[:, -1] != CONSTANT).any()):
            raise BadRowError(
                "a row is outside the unit ball or off the lattice; pass rows through Stream, "
                "or through streampca.linalg.lattice.onto_ball"
            )
        return self.step(rows, outlet or self.outlet())

    def absorb_gram(
        self, count: int, high: IntArray, low: IntArray, outlet: Outlet | None = None
    ) -> tuple[Processor, Release | None]:
        """`step_gram`, with a check of the block first.

        Parameters
        ----------
        count : how many rows, with 1 <= count <= `rows_until_release`.
        high, low : their exact Gram matrix, from `linalg.lattice.GramSum.high_low`.

        Raises
        ------
        BadParameterError
            If the algorithm needs the rows themselves, or the block is of the wrong shape or too long.
        BadRowError
            If the trace exceeds the number of rows, or a diagonal entry is negative.
            The sum does not show whether each row was admitted: the maker of the block is trusted with that.
        HorizonReachedError
            If the processor can take no more rows.
        """
        self.algorithm.check_blocks()
        size = svec_size(self.n_features)
        if high.shape != (size,) or low.shape != (size,) or count < 1:
            raise BadParameterError(
                f"{count} rows with high {high.shape} and low {low.shape} given; rows and shapes ({size},) expected"
            )
        self.check_room(count)
        constant = CONSTANT if self.algorithm.center else 0.0
        if not is_plausible((high, low), count, self.n_features, constant):
            raise BadRowError(f"this is no Gram matrix of {count} rows of the unit ball; make blocks with BlockGram.of")
        return self.step_gram(count, high, low, outlet or self.outlet())

    def check_horizon(self, count: int) -> None:
        """Raise `HorizonReachedError` if so many rows would exceed the horizon."""
        left = self.rows_left
        if left is not None and count > left:
            raise HorizonReachedError(
                f"{count} rows given, but the horizon of {self.t + left} rows leaves room for {left}: noise is "
                "calibrated for no more; use horizon=None for a stream of unknown length"
            )

    def check_room(self, count: int) -> None:
        """Raise unless so many rows may be absorbed at once: up to the next release and within the horizon."""
        due = self.rows_until_release
        if due == 0:
            self.check_horizon(count)
        if count > due:
            raise BadParameterError(f"{count} rows given, but a release is due after {due}; cut it there")

    def __repr__(self) -> str:
        return f"<processor of {self.algorithm!r} after {self.t} rows>"
