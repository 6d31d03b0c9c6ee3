"""What a scenario file may say, and where the files are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from streampca.errors import BadParameter

_PACKAGED = Path(__file__).resolve().parent / "files"
_CHECKOUT = Path(__file__).resolve().parents[2] / "scenarios"


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the rows come from: a public name of `streampca.sources`, or ``river.NAME``."""

    name: str
    params: dict[str, Any] = {}


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One algorithm on the rows of the scenario's source."""

    processor: str
    params: dict[str, Any] = {}
    stream: dict[str, Any] = {}


class Against(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another measured value: ``factor * value + margin``. What is left out is that of the expectation."""

    run: str | None = None
    measure: str | None = None
    at: float | None = None
    factor: float = 1.0
    margin: float = 0.0


class Expect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that must hold: a measure of a run, after a fraction ``at`` of the rows, against limits."""

    run: str
    measure: str
    at: float = 1.0
    at_least: float | Against | None = None
    at_most: float | Against | None = None
    falling: tuple[float, ...] | None = None
    only_full: bool = False
    why: str = ""


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A story and what must hold in it."""

    title: str
    shows: str
    rows: int
    ci_rows: int
    expect: tuple[Expect, ...]
    source: Source | None = None
    runs: dict[str, Run] = {}
    entry: str | None = None
    params: dict[str, Any] = {}
    papers: tuple[str, ...] = ()
    seed: int = 2013
    needs: tuple[str, ...] = ()


def directory() -> Path:
    """Where the scenario files are: inside an installed package, or at the top of a checkout."""
    return _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT


def names() -> list[str]:
    """Names of the scenarios that come with streampca."""
    return sorted(path.stem for path in directory().glob("*.toml"))


def load(name: str) -> Scenario:
    """Read and check a scenario: one that comes with streampca, or the path of a TOML file.

    Raises
    ------
    BadParameter
        If there is none of that name, or the file breaks the format.
    """
    path = Path(name) if name.endswith(".toml") else directory() / f"{name}.toml"
    if not path.is_file():
        raise BadParameter(
            f"there is no scenario {name!r}; there are: {', '.join(names())} (or give the path of a .toml file)"
        )
    try:
        scenario = msgspec.toml.decode(path.read_bytes(), type=Scenario)
    except msgspec.DecodeError as problem:  # covers syntax and ValidationError, which names the field
        raise BadParameter(f"{path}: {problem}") from problem
    fault = _fault(scenario)
    if fault:
        raise BadParameter(f"{path}: {fault}")
    return scenario


def _fault(scenario: Scenario) -> str | None:
    """What the types cannot say; None if all is well."""
    if not 1 <= scenario.ci_rows <= scenario.rows:
        return f"ci_rows={scenario.ci_rows} must be between 1 and rows={scenario.rows}"
    if not scenario.expect:
        return "expect is empty: a scenario must say what has to hold"
    if scenario.entry is None and not (scenario.source and scenario.runs):
        return 'give a [source] and at least one [runs.NAME], or entry = "module:function"'
    if scenario.entry is not None and (scenario.source or scenario.runs):
        return "entry brings its own rows and runs; leave out [source] and [runs]"
    for i, expect in enumerate(scenario.expect):
        where = f"expect[{i}]"
        if expect.at_least is None and expect.at_most is None and expect.falling is None:
            return f"{where} sets no limit; give at_least, at_most or falling"
        if expect.falling is not None and len(expect.falling) < 2:
            return f"{where}.falling needs at least two fractions of the stream"
        for at in (expect.at, *(expect.falling or ()), *(a.at for a in _others(expect) if a.at is not None)):
            if not 0.0 < at <= 1.0:
                return f"{where}: at={at} must be a fraction of the rows, in (0, 1]"
        for run in (expect.run, *(a.run for a in _others(expect) if a.run is not None)):
            if scenario.entry is None and run not in scenario.runs:
                return f"{where}: there is no run {run!r}; there are: {', '.join(scenario.runs)}"
    return None


def _others(expect: Expect) -> list[Against]:
    return [limit for limit in (expect.at_least, expect.at_most) if isinstance(limit, Against)]


def fractions(scenario: Scenario) -> list[float]:
    """The fractions of the stream at which something is expected, ascending, ending with 1."""
    wanted = {1.0}
    for expect in scenario.expect:
        wanted |= {expect.at, *(expect.falling or ())} | {a.at for a in _others(expect) if a.at is not None}
    return sorted(wanted)
