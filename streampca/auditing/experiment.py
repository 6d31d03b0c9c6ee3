"""What is audited: something that turns one of two neighbouring data sets into a transcript."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from streampca.auditing.statistic import Transcript
from streampca.errors import BadParameter
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import Mechanism
from streampca.privacy.guarantee import Guarantee
from streampca.processors.base import Algorithm
from streampca.release import Release
from streampca.stream import Stream

#: ``sample(changed, count, seed)``: that many independent transcripts of the data set without or with the change.
#: A seed reproduces them; with None their noise is fresh from the system.
Sample = Callable[[bool, int, int | None], Sequence[Transcript]]
#: ``run(changed, seed)``: one transcript.
Run = Callable[[bool, int | None], Transcript]


@dataclass(frozen=True)
class Experiment:
    """A claim and the means to test it.

    Attributes
    ----------
    name : what is audited.
    guarantee : what it claims.
    sample : runs it on one of two neighbouring data sets; see `Sample`.
    score : fixed score of a transcript, e.g. the log-ratio of two known
        densities; None learns a matched filter.
    """

    name: str
    guarantee: Guarantee
    sample: Sample
    score: Callable[[Transcript], float] | None = None


@dataclass(frozen=True)
class Neighbours:
    """Two data sets that differ in one row.

    Attributes
    ----------
    without, having : (n, d) arrays.
    probes : (m, d) array; transcripts hold the released matrix on these directions.
    """

    without: FloatArray
    having: FloatArray
    probes: FloatArray


def neighbours(
    n_rows: int,
    n_features: int,
    *,
    adjacency: str = "zero-out",
    position: int = 0,
    rows: FloatArray | None = None,
    canary: Sequence[float] | None = None,
) -> Neighbours:
    """Two data sets that differ in one row: by default the furthest apart for the Gram matrix.

    Zero-out: row ``position`` is the canary or the zero row. Replace: the canary or e_2.

    Parameters
    ----------
    n_rows, n_features : shape of the data sets.
    adjacency : ``"zero-out"`` or ``"replace"``.
    position : which row differs, from 0; negative ones count from the end.
    rows : the other rows; zero rows if left out.
    canary : the row that differs, e_1 if left out. Longer than 1 to test clipping.
    """
    without = np.zeros((n_rows, n_features)) if rows is None else np.array(rows, dtype=np.float64)
    having = without.copy()
    axes = np.eye(n_features)
    having[position] = axes[0] if canary is None else np.asarray(canary, dtype=np.float64)
    without[position] = axes[1] if adjacency == "replace" and n_features > 1 else 0.0
    plain = canary is None and not (adjacency == "replace" and n_features > 1)
    probes = axes[:1] if plain or n_features == 1 else axes[:2]
    return Neighbours(without, having, probes)


def of_algorithm(algorithm: Algorithm, pair: Neighbours, *, name: str | None = None) -> Experiment:
    """Audit an algorithm: every run is a `Stream` of its own, which admits rows as it does anyone's."""

    def releases(rows: FloatArray, seed: int | None) -> list[Release]:
        return Stream(algorithm, seed=seed, regret=None).push_many(rows).releases

    return _of_releases(name or repr(algorithm), algorithm.guarantee, releases, pair)


def of_mechanism(mechanism: Mechanism, pair: Neighbours, *, name: str | None = None) -> Experiment:
    """Audit a mechanism: every run is one release of one data set."""

    def releases(rows: FloatArray, seed: int | None) -> list[Release]:
        return [mechanism.release(rows, seed=seed)]

    return _of_releases(name or repr(mechanism), mechanism.guarantee, releases, pair)


def of_runs(name: str, guarantee: Guarantee, run: Run) -> Experiment:
    """Audit something that is run once for each transcript."""

    def sample(changed: bool, count: int, seed: int | None) -> Sequence[Transcript]:
        return [run(changed, derived_seed(seed, i)) for i in range(count)]

    return Experiment(name, guarantee, sample)


def of_samples(
    name: str, guarantee: Guarantee, draw: Callable[[bool, int, int | None], FloatArray], score: Any = None
) -> Experiment:
    """Audit something that is cheap to run many times at once: ``draw`` returns (count, m) numbers."""

    def sample(changed: bool, count: int, seed: int | None) -> Sequence[Transcript]:
        return [dict(enumerate_names(row)) for row in draw(changed, count, seed)]

    return Experiment(name, guarantee, sample, score)


def enumerate_names(values: Iterable[float]) -> Iterator[tuple[str, float]]:
    """Number the values: ("0", first), ("1", second), ..."""
    return ((str(i), float(value)) for i, value in enumerate(values))


def _of_releases(
    name: str, guarantee: Guarantee, releases: Callable[[FloatArray, int | None], list[Release]], pair: Neighbours
) -> Experiment:
    def run(changed: bool, seed: int | None) -> Transcript:
        return transcript(releases(pair.having if changed else pair.without, seed), pair.probes)

    return of_runs(name, guarantee, run)


def derived_seed(seed: int | None, *label: str | int) -> int | None:
    """A seed for each label; None without a seed."""
    if seed is None:
        return None
    text = repr((seed, *label)).encode()
    return int.from_bytes(blake2b(text, digest_size=32, person=b"streampca audit").digest())


def transcript(releases: Sequence[Release], probes: FloatArray) -> dict[str, float]:
    """Everything that left, as named numbers: the matrices on the probes, and all details."""
    out: dict[str, float] = {}
    for i, release in enumerate(releases):
        matrix = release.gram if release.has_gram else release.subspace.projector
        forms = probes @ matrix @ probes.T
        for a in range(len(probes)):
            for b in range(a, len(probes)):
                out[f"{i}/{a}{b}"] = float(forms[a, b])
        if not release.has_gram and release.eigenvalues is not None:
            out.update((f"{i}/value{j}", float(v)) for j, v in enumerate(release.eigenvalues))
        for path, value in _numbers(release.details, f"{i}"):
            out[path] = value
    return out


def _numbers(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """Numbers in nested JSON values; texts count as 1 under their own name."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _numbers(inner, f"{path}/{key}")
    elif isinstance(value, (list, tuple)):
        for i, inner in enumerate(value):
            yield from _numbers(inner, f"{path}/{i}")
    elif isinstance(value, str):
        yield f"{path}={value}", 1.0
    elif value is not None:
        yield path, float(value)


def smaller(algorithm: Algorithm, n_rows: int) -> Algorithm:
    """The algorithm calibrated for a stream of ``n_rows`` rows, where it has a horizon; itself otherwise.

    Raises
    ------
    BadParameter
        If the algorithm does not fit so few rows.
    """
    if algorithm.parameters().get("horizon") in (None, n_rows):
        return algorithm
    try:
        return replace(algorithm, horizon=n_rows)  # type: ignore[type-var]
    except BadParameter as problem:
        raise BadParameter(f"rows={n_rows} does not suit {type(algorithm).__name__}: {problem}") from problem
