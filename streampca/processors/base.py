"""Base classes of algorithms and processors.

An *algorithm* is a frozen configuration of public parameters, such as `PrivateFPL(...)`. It has a guarantee and starts
processors. A *processor* is the state of one run after t rows: an immutable value. `Processor.step` absorbs rows and
returns the processor after them. The processor before is unchanged, so an interrupted step has no effect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from typing import Any, ClassVar, Self

import numpy as np

from streampca.calendar import CAVEAT, MANUAL, count_of, length_of, periods_of
from streampca.errors import BadParameterError, BadRowError, HorizonReachedError, UsageError
from streampca.linalg.centering import CONSTANT, are_present
from streampca.linalg.counts import check_count
from streampca.linalg.lattice import GramSum, is_admitted, is_plausible
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray, IntArray
from streampca.privacy.configuration import Configuration
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import Chain, NoiseSource, Outlet
from streampca.privacy.randomness import Randomness
from streampca.release.clear import NoiseLaw
from streampca.release.release import Release
from streampca.release.terms import Terms
from streampca.rows.people import Budgets
from streampca.state import State, fields_of, label_of

#: Default number of rows between releases. A release a row is rarely read, and has more noise.
RELEASE_EVERY = 100
#: Parameters that count rows or directions. None is accepted where it is the default.
_COUNTS = ("window", "horizon", "release_every", "checkpoint_every", "batch_size")
#: Weight c of a reward relative to its row's Gram matrix, whose noise grows by sqrt(1 + c**2) = 11.8 % (zero-out).
REWARD_WEIGHT = 0.5
#: Largest number of rows in a block: float64 counts them exactly.
_MOST = 2**53


@dataclass(frozen=True, eq=False)
class Setting:
    """Public settings of a stream that its processor depends on."""

    terms: Terms  # of the releases
    label: tuple[object, ...] = ()  # further public parameters; runs that differ in one have independent noise


class Algorithm(Configuration):
    """A streaming algorithm: a frozen dataclass of public parameters, for any number of streams."""

    n_components: int
    #: Rows between releases; what None means is defined by the algorithm. A text is the period of a calendar.
    release_every: Any
    delta: float
    is_gaussian = True
    absorbs_grams: bool = False  #: whether only the exact Gram matrix of the rows is used (`Processor.step_gram`)
    #: True if every block of rows ends with a release, for any length of the block.
    batches: ClassVar[bool] = False
    #: Whether the sum of a period may be one input (`streampca.calendar`).
    absorbs_periods: ClassVar[bool] = False
    processor: ClassVar[type[Any]]  # set by its class, ``of=`` this one

    def __post_init__(self) -> None:
        if self.has_calendar:
            self._use_calendar(self.release_every)
        super().__post_init__()
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name, None)
            is_period = field.name == "release_every" and self.has_calendar
            if field.name in _COUNTS and value != "auto" and not is_period:
                check_count(field.name, value, optional=field.default is None)
            if field.name == "clip" and not (value is None or (isinstance(value, (int, float)) and 0.0 < value <= 1.0)):
                raise BadParameterError("clip", value, "a number in (0, 1] or None")
        if self.unit is not None and self.unit.period is not None and not self.unit_periods:
            raise UsageError(
                f"unit.period={self.unit.period!r}, release_every={getattr(self, 'release_every', None)!r}: expected a "
                f"calendar, and a multiple of its periods. Use release_every={self.unit.period!r}, or omit unit.period"
            )

    def _use_calendar(self, every: str) -> None:
        """Convert durations to numbers of periods. Raise unless the algorithm and its parameters fit a calendar."""
        if every != MANUAL:
            length_of("release_every", every)
        name = f"release_every={every!r}"
        if not self.absorbs_periods:
            raise UsageError(
                f"{name}: not supported by {type(self).__name__}. Use PrivateFPL, SlidingWindowPCA or "
                "Tumbling(GaussianCovariance(...)), or a number of rows"
            )
        # Addition and removal of a row move one period's sum by a row, which no other adjacency describes.
        own = {"adjacency": "zero-out", "publish_regret": False, "keep_short": False}
        for option, remedy in own.items():
            value = vars(self).get(option, remedy)
            if value != remedy:
                raise UsageError(f"{option}={value!r}, {name}: not supported together. Use {option}={remedy!r}")
        for option in ("horizon", "window"):
            if isinstance(value := vars(self).get(option), str):
                object.__setattr__(self, option, periods_of(option, value, every))

    @property
    def unit_periods(self) -> int:
        """Number of inputs after which the budgets of people begin anew; 0 for never."""
        period = None if self.unit is None else self.unit.period
        return 0 if period is None or not self.has_calendar else count_of("unit.period", period, self.release_every)

    @property
    def every(self) -> Any:
        """Number of inputs between releases: rows, or one period."""
        return 1 if isinstance(self.release_every, str) else self.release_every

    @property
    def guarantee(self) -> Guarantee:
        return self.dated(super().guarantee)

    def dated(self, guarantee: Guarantee) -> Guarantee:
        """Return a guarantee against zero rows as that of this algorithm: with a calendar, against absent rows."""
        if not self.has_calendar or not guarantee.is_private:
            return guarantee
        theorem = f"{guarantee.theorem}; sums of periods of a public calendar"
        return replace(guarantee, adjacency="add-remove", theorem=theorem, caveat=CAVEAT)

    def check_blocks(self) -> None:
        """Raise `UsageError` unless the algorithm absorbs Gram matrices of blocks."""
        if self.has_calendar:
            raise UsageError(
                f"release_every={self.release_every!r}: the rows of a block have no times. Push rows, or pass a number "
                "of rows as release_every="
            )
        if self.unit is not None:
            raise UsageError("unit=Person(...): a block does not show whose rows it holds. Push rows, or omit unit=")
        if self.counts_cells:
            raise UsageError(
                "missing_rates='private': blocks have no numbers of cells present. Pass public shares, or correct=False"
            )
        # A sum over a block does not show its rows, on which rewards and gradients depend.
        if not self.absorbs_grams:
            raise UsageError(
                f"{type(self).__name__} with these parameters needs rows, not Gram matrices of blocks. Use PrivateFPL "
                "without publish_regret=, or push rows"
            )

    def products(self, inputs: IntArray, n: int) -> FloatArray:
        """Return `MatrixFactorization.products` of all releases. The default is that of inputs without common noise."""
        return np.asarray(inputs == n, dtype=np.float64)

    def budgets(self, key: bytes) -> Budgets | None:
        """Return the budgets of the people of a stream, before its first row; None if the unit is a row."""
        if self.unit is None:
            return None
        reward = REWARD_WEIGHT if getattr(self, "publish_regret", False) else 0.0
        return Budgets(
            self.unit, key, self.full_row, reward, self.products, center=self.center, cells=self.counts_cells
        )

    def noise_law(self, n_features: int) -> NoiseLaw | None:
        """Return the law of the noise in Gram matrices, for the terms of releases; None as in `Terms`."""
        return None

    def run_terms(self) -> Mapping[str, Any] | None:
        """Return `Terms.run` without the name of the run; None where releases may not be subtracted."""
        return None

    parameters = fields_of

    def resolved(self, n_features: int) -> Self:
        """Return the algorithm with numbers for defaults that depend on the number of features of a row."""
        return self

    def start(
        self, n_features: int, randomness: Randomness | None = None, setting: Setting | None = None, *,
        start: bytes | None = None, snapshot: Mapping[str, Any] | None = None,
    ) -> Processor:  # fmt: skip
        """Create a processor before its first row, or restore one from a snapshot.

        ``n_features`` is the length of the admitted rows, with the constant if ``center``. ``start`` are 16 bytes that
        name this start of a run; None draws them, or derives them from the seed if there is one. A ``snapshot`` is from
        `Processor.snapshot`, for the same parameters, randomness, setting and start.
        """
        randomness = randomness or Randomness()
        if setting is None:
            guarantee = self.guarantee_for(n_features - int(self.center))
            guarantee = guarantee.seeded() if randomness.is_seeded else guarantee
            setting = Setting(Terms(guarantee, noise=self.noise_law(n_features)))
        self.check(n_features - int(self.center))
        # Privacy: runs that differ in a public number share no noise, so that no difference of releases shows the rows.
        algorithm = self.resolved(n_features - int(self.center))
        label = label_of(algorithm), n_features, self.constants(n_features), setting.label
        source = NoiseSource(randomness, *label, start=start)
        terms, run = setting.terms, self.run_terms()
        if run is not None:
            terms = replace(terms, run={"name": run_name(source.start), **run})
        begun: Processor = self.processor(algorithm, n_features, source, terms)
        return begun if snapshot is None else begun.restored(snapshot, source)


def run_name(start: bytes) -> str:
    """Return the public name of a run from the 16 bytes of its start, which are part of the key of its noise."""
    # Privacy: one-way, and the start is random. A seed can be searched for, as it can with the releases. Runs with one
    # seed and equal parameters share a name, although different rows have independent noise.
    return blake2b(start, digest_size=16, person=b"streampca run").hexdigest()


class Processor(State, ABC):
    """State of a run of an algorithm after t rows: an immutable value. As secret as the rows."""

    __slots__ = ("algorithm", "chain", "n_features", "source", "t", "terms")
    kept: ClassVar[tuple[str, ...]] = ("t", "chain", "run")

    slots: ClassVar[tuple[str, ...]]  # of the class and its bases

    def __init_subclass__(cls, of: type[Algorithm] | None = None) -> None:
        super().__init_subclass__()
        if of is not None:
            of.processor = cls
        cls.slots = tuple(name for base in cls.__mro__ for name in vars(base).get("__slots__", ()))

    def __init__(self, algorithm: Algorithm, n_features: int, source: NoiseSource, terms: Terms) -> None:
        self.algorithm = algorithm
        self.n_features = n_features  # length of the admitted rows, with the constant if ``algorithm.center``
        self.source = source  # of the noise
        self.terms = terms  # of the releases
        self.chain: Chain = source.first  # binds the noise to all that was hidden before
        self.t = 0

    @property
    def further(self) -> int:
        """Number of the last entries of a row that state which cells are present, if these are counted."""
        return (self.n_features - int(self.algorithm.center)) * int(self.algorithm.counts_cells)

    @property
    def run(self) -> str | None:
        """Public name of the run; None where releases may not be subtracted."""
        return None if self.terms.run is None else self.terms.run["name"]

    @run.setter
    def run(self, name: str | None) -> None:
        # Releases of a run share one object of terms, so it is replaced only where the name is another one.
        if self.terms.run is not None and name != self.run:
            self.terms = replace(self.terms, run={**self.terms.run, "name": name})

    @property
    def rows_until_release(self) -> int:
        """Rows until the next release; 0 at the horizon."""
        every, left = self.algorithm.every, self.rows_left
        due: int = _MOST if self.algorithm.batches else every - self.t % every
        return due if left is None else min(due, left)

    def inputs_of(self, count: int) -> Sequence[int]:
        """Return the numbers of the inputs, from 1, to which the next ``count`` rows belong."""
        every = self.algorithm.every
        if self.algorithm.has_calendar:  # rows of the open period
            return [self.t + 1] * count
        return [(self.t + i) // every + 1 for i in range(count)]

    @abstractmethod
    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[Processor, Release | None]:
        """Absorb (n, n_features) admitted rows, 1 <= n <= `rows_until_release`.

        Return the processor after them, and a release if one is due. The outlet is used for this step only.
        """

    def step_gram(self, count: int, high: IntArray, low: IntArray, outlet: Outlet) -> tuple[Processor, Release | None]:
        """Absorb rows by their exact packed Gram matrix, to the bits of `step`; only if ``algorithm.absorbs_grams``."""
        raise NotImplementedError

    def finish(self, outlet: Outlet) -> tuple[Processor, Release | None]:
        """End the stream at a moment that does not depend on the rows; release rows that wait, if parameters say so."""
        return self, None

    @property
    def rows_left(self) -> int | None:
        """Rows until the horizon; None if endless."""
        horizon: int | None = getattr(self.algorithm, "horizon", None)
        return None if horizon is None else horizon - self.t

    def regret_bound(self, t: int, opt: float) -> float | None:
        """Bound on the expected regret after t rows of a stream fixed in advance; None if none below OPT is proved."""
        return None

    def curator_gram(self) -> GramSum | None:
        """Exact Gram matrix of all rows absorbed, the attribute ``gram`` of processors that keep one. Curator only."""
        gram: GramSum | None = getattr(self, "gram", None)
        return None if gram is None else gram.matrix()

    def after(self, t: int, chain: Chain, **changes: Any) -> Self:
        """Return a copy after t rows with other values of some attributes."""
        # Values are shared with this one, never copied: every state is replaced, not changed.
        copy = object.__new__(type(self))
        for name in self.slots:  # once a release; `copy.copy` needs twice the time
            setattr(copy, name, getattr(self, name))
        if hasattr(self, "__dict__"):
            copy.__dict__.update(self.__dict__)
        copy.t, copy.chain = t, chain
        for name, value in changes.items():
            setattr(copy, name, value)
        return copy

    def outlet(self, recorded: Sequence[bytes] | None = None) -> Outlet:
        """Return the outlet of the next step; ``recorded`` are the fresh bytes of a replay."""
        return Outlet(self.source, self.chain, recorded)

    def absorb(self, rows: FloatArray, outlet: Outlet | None = None) -> tuple[Processor, Release | None]:
        """Check rows, then `step`. Privacy does not depend on the caller: a row that was not admitted raises."""
        width = self.n_features + self.further
        if rows.ndim != 2 or rows.shape[1] != width or rows.shape[0] < 1:
            raise BadParameterError("rows", rows, f"(n, {width}) with n >= 1")
        self.check_room(rows.shape[0])
        # The noise is calibrated for the constant of a centered row, so it is checked to the bit.
        vectors, cells = rows[:, : self.n_features], rows[:, self.n_features :]
        center = self.algorithm.center
        admitted = is_admitted(vectors[:, :-1]) and are_present(vectors) if center else is_admitted(vectors)
        if not (admitted and ((cells == 0.0) | (cells == 1.0)).all()):
            raise BadRowError(None, "a row outside the unit ball or off the lattice. Use Stream or lattice.onto_ball")
        return self.step(rows, outlet or self.outlet())

    def absorb_gram(
        self, count: int, high: IntArray, low: IntArray, outlet: Outlet | None = None
    ) -> tuple[Processor, Release | None]:
        """Check the exact Gram matrix of ``count`` rows (`linalg.lattice.GramSum.high_low`), then `step_gram`.

        The sum does not show whether each row was admitted: the process that computed the block is trusted with that.
        """
        self.algorithm.check_blocks()
        size = svec_size(self.n_features)
        if high.shape != (size,) or low.shape != (size,) or count < 1:
            raise UsageError(
                f"count={count}, high of shape {high.shape} and low of shape {low.shape}: expected at least one row "
                f"and shapes ({size},)"
            )
        self.check_room(count)
        # The corner of a centered block is the number of rows that are present, in units of the constant squared.
        constant = CONSTANT if self.algorithm.center else 0.0
        if not is_plausible((high, low), count, self.n_features, constant):
            raise BadRowError(None, f"block: no Gram matrix of {count} rows with norm at most 1. Use BlockGram.of")
        return self.step_gram(count, high, low, outlet or self.outlet())

    def check_horizon(self, count: int) -> None:
        """Raise `HorizonReachedError` if ``count`` further rows exceed the horizon."""
        left = self.rows_left
        if left is not None and count > left:
            # The noise is calibrated for the horizon, so no further row has a guarantee.
            inputs = "periods" if self.algorithm.has_calendar else "rows"
            raise HorizonReachedError(
                f"the noise was set for {self.t + left} {inputs}, of which {left} are left. No further row is taken; "
                "use horizon=None for a stream of unknown length"
            )

    def check_room(self, count: int) -> None:
        """Raise unless ``count`` rows fit before the next release and the horizon."""
        due = self.rows_until_release
        # No release is due at the horizon: the error for it names the horizon, not a block to cut.
        if due == 0:
            self.check_horizon(count)
        if count > due:
            raise UsageError(f"{count} rows given, but a release is due after {due}. Cut the block there")

    def __repr__(self) -> str:
        return f"<processor of {self.algorithm!r} after {self.t} rows>"
