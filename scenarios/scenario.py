"""Scenarios: demonstrations of streampca on public or synthetic rows, each with the measurements that must hold.

The format of their files is in `scenarios/README.md`.
"""

import importlib.util
import math
import operator
import resource
import runpy
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

import streampca
from streampca.errors import UsageError, reason, short
from streampca.linalg.eigen import top_sum
from streampca.linalg.frequent_directions import FrequentDirections
from streampca.linalg.lattice import GramSum
from streampca.linalg.svec import unpack_entries
from streampca.linalg.types import FloatArray
from streampca.release.subspace import Subspace
from streampca.rows.protocol import RowSource
from streampca.sources.synthetic import Synthetic

__all__ = ["Check", "Context", "Result", "Scenario", "load", "names", "run_scenario"]

#: Rows pushed at a time. Changes no result; progress is reported after each block.
BLOCK = 4096
#: Measured values: run -> measure -> value, and run -> fraction of the stream -> measure -> value.
Measures = dict[str, dict[str, float]]
Table = Mapping[str, Mapping[float, Mapping[str, float]]]

FOLDER = Path(__file__).resolve().parent

# Files are checked by their types: of the rules, only those that connect two fields are written out, in `load`.
Fraction = Annotated[float, Meta(gt=0.0, le=1.0)]
Count = Annotated[int, Meta(ge=1)]


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Origin of the rows: a public name of `streampca.sources`, or ``river.NAME``."""

    name: str
    params: dict[str, Any] = {}


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One algorithm on the rows of the scenario's source."""

    processor: str
    params: dict[str, Any] = {}
    stream: dict[str, Any] = {}


class Against(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another measured value: ``factor * value + margin``. Fields that are None are those of the expectation."""

    run: str | None = None
    measure: str | None = None
    at: Fraction | None = None
    factor: float = 1.0
    margin: float = 0.0


class Expect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Expectation: limits for a measure of a run, after a fraction ``at`` of the rows."""

    run: str
    measure: str
    at: Fraction = 1.0
    at_least: float | Against | None = None
    at_most: float | Against | None = None
    falling: Annotated[tuple[Fraction, ...], Meta(min_length=2)] | None = None
    only_full: bool = False
    why: str = ""

    @property
    def others(self) -> list[Against]:
        """Limits that are other measured values."""
        return [limit for limit in (self.at_least, self.at_most) if isinstance(limit, Against)]


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of a scenario file. Created by `load`, which puts the file's folder in front of ``entry``."""

    title: str
    shows: str
    rows: Count
    ci_rows: Count
    expect: Annotated[tuple[Expect, ...], Meta(min_length=1)]
    source: Source | None = None
    runs: dict[str, Run] = {}
    entry: str = ""
    params: dict[str, Any] = {}
    seed: int = 2013
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Context:
    """Argument of a scenario's own function."""

    rows: int
    seed: int
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """One expectation beside the measured value."""

    expect: Expect
    what: str
    measured: str
    wanted: str
    holds: bool


@dataclass(frozen=True)
class Result:
    """Measurements and checks of one run of a scenario; ``final`` has the measures at the end of each run."""

    rows: int
    final: Measures
    checks: tuple[Check, ...]
    seconds: float


def names() -> list[str]:
    """Return the names of the scenarios in this folder."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> Scenario:
    """Read and check a scenario: the name of one in this folder, or the path of a TOML file. Runs no code of it.

    Raises `UsageError` if there is none of that name, or the file breaks the format.
    """
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.is_file():
        raise UsageError(f"there is no scenario {name!r}; there are: {', '.join(names())}, or give a .toml file")
    try:
        scenario = msgspec.toml.decode(path.read_bytes(), type=Scenario)
    except (msgspec.DecodeError, ValueError, RecursionError) as problem:  # ValueError: digits, UTF-8, or a wrong type
        raise UsageError(f"{path}: {reason(problem)}") from problem
    fault = ""
    if bool(scenario.entry) == bool(scenario.source or scenario.runs) or bool(scenario.source) != bool(scenario.runs):
        fault = 'give a [source] and at least one [runs.NAME], or entry = "FILE.py:FUNCTION"'
    for i, expect in enumerate(scenario.expect):
        if expect.at_least is None and expect.at_most is None and expect.falling is None:
            fault = fault or f"expect[{i}] sets no limit; give at_least, at_most or falling"
        runs = {expect.run, *(other.run for other in expect.others if other.run is not None)}
        if scenario.runs and (unknown := runs - set(scenario.runs)):
            fault = fault or f"expect[{i}]: there is no run {short(min(unknown))}"
    if fault:
        raise UsageError(f"{path}: {fault}")
    entry = str(path.resolve().parent / scenario.entry) if scenario.entry else ""
    return msgspec.structs.replace(scenario, entry=entry)


def run_scenario(
    scenario: Scenario, rows: int | None = None, *, progress: Callable[[str, int, int], None] | None = None
) -> Result:
    """Run a scenario and check its expectations. If it has an ``entry``, this runs the code of that file.

    Parameters
    ----------
    scenario : from `load`.
    rows : number of rows; None for the scenario's own. Expectations marked ``only_full`` are not checked at fewer.
    progress : called with (run, rows done, rows in all).

    Raises
    ------
    UsageError
        If the number of rows is below 1, a required module is not installed, or a measure was not measured.
    """
    count = scenario.rows if rows is None else rows
    if count < 1:
        raise UsageError(f"rows={rows} must be at least 1")
    for module in scenario.needs:
        if importlib.util.find_spec(module) is None:
            raise UsageError(f"this scenario needs the package {module}: pip install 'streampca[demo]'")
    started = time.perf_counter()
    table: dict[str, dict[float, dict[str, float]]] = {}
    if scenario.source is None:
        file, _, function = scenario.entry.rpartition(":")
        measure = runpy.run_path(file)[function]
        for name, values in measure(Context(count, scenario.seed, scenario.params)).items():
            table[name] = {1.0: {measure: float(value) for measure, value in values.items()}}
    else:
        points = {1.0}
        for expect in scenario.expect:
            points |= {expect.at, *(expect.falling or ()), *(one.at for one in expect.others if one.at is not None)}
        tokens = {"$rows": count, "$seed": scenario.seed}
        for name, run in scenario.runs.items():
            algorithm = _object({"class": run.processor, **_fill(run.params, tokens)})
            source = _source(scenario.source, tokens)
            scale = {"row_norm": 1.0} if source.bounds is None else {"bounds": source.bounds}
            stream = streampca.Stream(algorithm, **{"seed": scenario.seed} | scale | _fill(run.stream, tokens))
            meter = Meter(stream, source)
            table[name] = {}
            for at in sorted(points):
                for done in meter.push_until(max(1, round(at * count)), scenario.source.name):
                    if progress is not None:
                        progress(name, done, count)
                table[name][at] = meter.measure()
    full = count >= scenario.rows
    checks = tuple(check(expect, table) for expect in scenario.expect if full or not expect.only_full)
    return Result(count, {run: at[1.0] for run, at in table.items()}, checks, time.perf_counter() - started)


def _source(source: Source, tokens: Mapping[str, Any]) -> RowSource:
    """Rows of a ``[source]``."""
    params, name = _fill(source.params, tokens), source.name
    if name.startswith("river."):
        from river import datasets

        dataset = getattr(datasets, name[6:])()
        return streampca.sources.open_rows(dataset.path, columns=[*next(iter(dataset))[0]], **params)
    rows: RowSource = operator.attrgetter(name)(streampca.sources)(**params)
    return rows


def _fill(params: Any, tokens: Mapping[str, Any]) -> Any:
    """Replace "$names" by their values, and tables that name a class by objects."""
    if isinstance(params, str):
        return tokens.get(params, params)
    if isinstance(params, Mapping):
        filled = {k: _fill(v, tokens) for k, v in params.items()}
        return _object(filled) if "class" in filled else filled
    return [_fill(v, tokens) for v in params] if isinstance(params, Iterable) else params


def _object(spec: dict[str, Any]) -> Any:
    name = spec.pop("class")
    return getattr(streampca.papers if name in streampca.papers.__all__ else streampca, name)(**spec)


class Meter:
    """Measurements of a stream of the rows of a source. Curator only: exact functions of raw rows."""

    def __init__(self, stream: streampca.Stream, source: RowSource) -> None:
        stream.engine.adopt(source)
        self._stream, self._source, self._rows = stream, source, iter(source)
        self._releases = 0
        self._sum: GramSum | None = None  # of the rows, if the stream keeps only a sketch of it
        self._gram: FloatArray | None = None  # exact Gram matrix at the last measurement

    def push_until(self, stop: int, name: str) -> Iterable[int]:
        """Push rows until their number is ``stop``; yield it after each block.

        Raises `UsageError` if the source, called ``name`` in the message, ends before.
        """
        while (done := self._stream.t) < stop:
            block = np.array([*islice(self._rows, min(stop - done, BLOCK))])
            if not len(block):
                raise UsageError(f"the source {name!r} ended after {done} rows; ask for at most {done}")
            self._releases += len(self._stream.push_many(block).releases)
            now = self._stream.engine.now
            if now.regret is not None and isinstance(now.regret.own, FrequentDirections):
                admitted, _ = now.admission.block(block, done + 1)
                self._sum = (self._sum or GramSum(admitted.shape[1])).add(admitted)
            yield self._stream.t

    def measure(self) -> dict[str, float]:
        """Every measure that applies, at this moment."""
        stream, record, release = self._stream, self._stream.regret.now(), self._stream.release
        subspace, own = stream.engine.subspace(), self._sum
        gram = stream.regret.exact_gram() if own is None else unpack_entries(own.packed(), own.n_features)
        recent = gram if self._gram is None else gram - self._gram
        best = top_sum(recent, stream.algorithm.n_components)
        values = {
            "regret_per_row": record.average,
            "relative_regret": record.regret / record.opt if record.opt > 0.0 else 0.0,
            "captured_variance": record.captured,
            "recent_captured": subspace.captured(recent) / best if best > 0.0 else 1.0,
            "releases": float(self._releases),
            "bad_rows": float(stream.admission.bad_rows),
        }
        self._gram = gram
        if record.bound is not None:
            values |= {"bound_per_row": record.per_row(record.bound), "regret_over_bound": record.regret / record.bound}
        if release is not None and release.noise_std is not None:
            values["noise_std"] = release.noise_std
        if release is not None and release.packed is not None and release.t == stream.t:
            # Releases are in units of the rows, exact sums in units of row_norm**2.
            values["spectral_error"] = float(np.linalg.norm(release.gram - gram * stream.row_norm**2, 2))
        if isinstance(self._source, Synthetic):
            truth = Subspace(self._source.truth_at(stream.t))
            values["subspace_error"] = float(np.sin(subspace.angles(truth)[-1]))
        values["memory"] = _resident()
        return {name: value for name, value in values.items() if not np.isnan(value)}


def _resident() -> float:
    """Memory of this process now, in MB; its peak where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:  # ru_maxrss: bytes on macOS, kilobytes elsewhere
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    return pages * resource.getpagesize() / 2**20


def check(expect: Expect, table: Table) -> Check:
    """Compare one expectation with a table. A value that is not a number never holds.

    Raises `UsageError` if the run or the measure is not in the table.
    """

    def value_of(run: str, measure: str, at: float) -> float:
        try:
            return float(table[run][at][measure])
        except KeyError:
            known = {name: sorted(set().union(*points.values())) for name, points in table.items()}
            raise UsageError(f"run {run!r} has no measure {measure!r} at {at:g}; there are: {known}") from None

    what = f"{expect.run}: {expect.measure}" + ("" if expect.at == 1.0 else f" at {expect.at:g} of the rows")
    if expect.falling is not None:
        values = [value_of(expect.run, expect.measure, at) for at in expect.falling]
        at = ", ".join(f"{at:g}" for at in expect.falling)
        falls = all(a > b for a, b in pairwise(values))
        return Check(expect, what, " > ".join(map(number, values)), f"falling at {at}", falls)
    value = value_of(expect.run, expect.measure, expect.at)
    wanted, holds = [], not math.isnan(value)
    for sign, holds_for, limit in ((">=", operator.ge, expect.at_least), ("<=", operator.le, expect.at_most)):
        if limit is None:
            continue
        origin = ""
        if isinstance(limit, Against):
            run, measure, at_ = limit.run or expect.run, limit.measure or expect.measure, limit.at or expect.at
            origin = f" ({limit.factor:g} x {run} {measure} at {at_:g}, plus {limit.margin:g})"
            limit = limit.factor * value_of(run, measure, at_) + limit.margin
        wanted.append(f"{sign} {number(limit)}{origin}")
        holds = holds and holds_for(value, limit)
    return Check(expect, what, number(value), ", ".join(wanted), holds)


def number(value: float) -> str:
    """Five significant digits."""
    return f"{value:.5g}"
