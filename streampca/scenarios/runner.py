"""Running a scenario: build what it names, stream its rows, measure, check."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import streampca
from streampca.errors import BadParameter
from streampca.linalg.types import FloatArray
from streampca.rows import RowSource
from streampca.scenarios.checks import Check, check
from streampca.scenarios.measures import Meter
from streampca.scenarios.spec import Run, Scenario, Source, fractions

#: Rows pushed at a time; carries no meaning, only keeps progress smooth.
BLOCK = 4096


@dataclass(frozen=True)
class Context:
    """What a scenario's own function is given."""

    rows: int
    seed: int
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What came of a scenario."""

    scenario: Scenario
    rows: int
    table: dict[str, dict[float, dict[str, float]]]
    checks: tuple[Check, ...]
    seconds: float

    @property
    def holds(self) -> bool:
        """True if every expectation holds."""
        return all(check.holds for check in self.checks)

    @property
    def final(self) -> dict[str, dict[str, float]]:
        """The measures of each run at its end."""
        return {run: dict(points[max(points)]) for run, points in self.table.items()}


def run_scenario(
    scenario: Scenario, rows: int | None = None, *, progress: Callable[[str, int, int], None] | None = None
) -> Result:
    """Run a scenario and check what it expects.

    Parameters
    ----------
    scenario : from `load`.
    rows : number of rows; the scenario's own if left out. Expectations marked
        ``only_full`` are left out at fewer rows than that.
    progress : called with (run, rows done, rows in all).
    """
    count = scenario.rows if rows is None else rows
    if count < 1:
        raise BadParameter(f"rows={rows} must be at least 1")
    for module in scenario.needs:
        if importlib.util.find_spec(module) is None:
            raise BadParameter(f"this scenario needs the package {module}: pip install 'streampca[demo]' (or {module})")
    started = time.perf_counter()
    if scenario.entry is not None:
        made = _call(scenario.entry, Context(count, scenario.seed, scenario.params))
        table = {run: {1.0: {k: float(v) for k, v in values.items()}} for run, values in made.items()}
    else:
        table = {name: _measure(scenario, name, count, progress) for name in scenario.runs}
    full = count >= scenario.rows
    checks = tuple(check(expect, table) for expect in scenario.expect if full or not expect.only_full)
    return Result(scenario, count, table, checks, time.perf_counter() - started)


def _call(entry: str, context: Context) -> Mapping[str, Mapping[str, float]]:
    module, _, name = entry.partition(":")
    function = getattr(importlib.import_module(module), name or "run")
    made: Mapping[str, Mapping[str, float]] = function(context)
    return made


def _measure(
    scenario: Scenario, name: str, count: int, progress: Callable[[str, int, int], None] | None
) -> dict[float, dict[str, float]]:
    run, tokens = scenario.runs[name], {"$rows": count, "$seed": scenario.seed}
    assert scenario.source is not None
    source = make_source(scenario.source, tokens)
    stream = make_stream(run, tokens, scenario.seed)
    meter = Meter(stream, source)
    points: dict[float, dict[str, float]] = {}
    done = 0
    blocks = source.blocks()
    left: FloatArray | None = None
    for at in fractions(scenario):
        stop = max(1, round(at * count))
        while done < stop:
            block = left if left is not None else next(blocks, None)
            if block is None:
                raise BadParameter(
                    f"the source {scenario.source.name!r} ended after {done} rows; ask for at most {done}"
                )
            take = min(stop - done, BLOCK)
            block, left = block[:take], (block[take:] if len(block) > take else None)
            meter.push(block)
            done += len(block)
            if progress is not None:
                progress(name, done, count)
        points[at] = meter.measure()
    return points


def make_source(source: Source, tokens: Mapping[str, Any]) -> RowSource:
    """The rows that a ``[source]`` names."""
    params = _fill(source.params, tokens)
    if source.name.startswith("river."):
        from river import datasets

        found: RowSource = streampca.sources.from_river(
            _public(datasets, source.name[6:], "river.datasets")(), **params
        )
    else:
        found = _public(streampca.sources, source.name, "streampca.sources")(**params)
    return found


def _public(module: Any, name: str, where: str) -> Any:
    found = module
    for part in name.split("."):
        found = None if part.startswith("_") else getattr(found, part, None)
    if not callable(found):
        raise BadParameter(f"source.name={name!r} is not a public name of {where}")
    return found


def make_stream(run: Run, tokens: Mapping[str, Any], seed: int) -> streampca.Stream:
    """A stream of the algorithm that a ``[runs.NAME]`` names."""
    algorithm = _make({"class": run.processor, **_fill(run.params, tokens)})
    return streampca.Stream(algorithm, **{"seed": seed, **_fill(run.stream, tokens)})


def _fill(params: Any, tokens: Mapping[str, Any]) -> Any:
    """Put values for $names, and objects for tables that name a class."""
    if isinstance(params, str):
        return tokens.get(params, params)
    if isinstance(params, Mapping):
        filled = {k: _fill(v, tokens) for k, v in params.items()}
        return _make(filled) if "class" in filled else filled
    if isinstance(params, Iterable):
        return [_fill(v, tokens) for v in params]
    return params


def _make(spec: dict[str, Any]) -> Any:
    name = spec.pop("class")
    if name.startswith("_") or not hasattr(streampca, name):
        raise BadParameter(f"{name!r} is not a public name of streampca")
    return getattr(streampca, name)(**spec)
