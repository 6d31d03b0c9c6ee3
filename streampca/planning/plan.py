"""The planner: predict all that applies, recommend one, warn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca.errors import UsageError, answered
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray
from streampca.mechanisms.covariance import GaussianCovariance
from streampca.mechanisms.exact_subspace import ExactSubspace
from streampca.planning.curve import Curve
from streampca.planning.predictions import ONCE, STREAM, WINDOW, Prediction, covariances, oja, sketch
from streampca.planning.question import GUESSES, NORMS, Question
from streampca.privacy.budget import DELTA, Adjacency
from streampca.privacy.unit import Person
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.processors.tumbling import Tumbling
from streampca.rows.advice import settings_warnings
from streampca.tables import html_table

if TYPE_CHECKING:
    import pandas as pd

#: Candidates closer than this in captured variance or in regret count as equal.
_EQUAL = 0.003
#: Bytes of a window beyond which its spectral histogram is preferred.
_HELD = 2**28
#: Loss of a smoothed window from which one release a window is considered instead.
_LOST = 0.05
#: A subspace that captures less than this share of the best one's reward is mostly noise.
DROWNED = 0.5
#: Bytes of `PrivateFPL` with the most buffers, over d**2, and the most that its matrices may take.
_SQUARE_BYTES, _MATRICES = 88.0, 1e9
#: Releases up to which `PrivateSketch` captures more than `PrivateOja` (4096 features; at 768, many more).
_SKETCHED = 64
#: Norm that the planner proposes, over that of typical rows.
_LONGER = 1.5
#: Loss of one release by the Gaussian mechanism from which an adaptive one is chosen.
_LOSES = 0.002
#: Share that a good subspace captures.
GOOD = 0.99


@dataclass(frozen=True)
class Plan:
    """Predictions and a recommendation."""

    question: Question
    predictions: tuple[Prediction, ...]  #: all candidates; those that serve the purpose first, the best one first
    best: Prediction  #: the recommended one
    reason: str  #: for the recommendation
    warnings: tuple[str, ...]  #: expected failures, with the number of rows that would suffice
    advice: tuple[str, ...]  #: on choices that the planner cannot make

    @property
    def algorithm(self) -> Any:
        """The recommended algorithm or mechanism."""
        return self.best.algorithm

    def to_frame(self) -> pd.DataFrame:
        """Return the predictions as a pandas frame of text, a row for each candidate."""
        import pandas as pd

        return pd.DataFrame([
            {
                "candidate": p.label,
                "captured": _cell(p),
                "regret": "-" if p.regret_per_row is None else f"{p.regret_per_row:.3g}",
                "noise": "-" if p.noise_std is None else f"{p.noise_std:.4g}",
                "releases": str(p.releases),
            }
            for p in self.predictions
        ])  # fmt: skip

    def notes(self) -> list[tuple[str, str]]:
        """Return the assumption, the recommendation with its reason, warnings and advice, each with its name."""
        notes = [("assumed", self.question.assumed), ("use", self.best.code), ("why", self.reason)]
        return [*notes, *(("warning", text) for text in self.warnings), *(("advice", text) for text in self.advice)]

    def _repr_html_(self) -> str:
        table, use, notes = self.to_frame(), f"Use {self.best.code}", ". ".join(map(": ".join, self.notes()))
        return html_table(list(table.columns), table.itertuples(index=False), warning=use, note=notes)

    def __str__(self) -> str:
        limits = [f"{p.label}: {p.note}" for p in self.predictions if p.note]
        return "\n".join([self.to_frame().to_string(index=False), *limits, "", *map(": ".join, self.notes())])


@answered
def plan(
    *,
    n_rows: int,
    n_features: int,
    n_components: int,
    epsilon: float,
    delta: float = DELTA,
    adjacency: Adjacency = "zero-out",
    window: int | None = None,
    release_every: int | None = None,
    center: bool = True,
    spectrum: str | Sequence[float] | FloatArray | None = None,
    row_norm: float = 1.0,
    typical_norm: float | None = None,
    rows_per_person: float | None = None,
) -> Plan:
    """Predict noise, captured variance and regret of every algorithm that applies.

    No row is read, and no budget is spent: predictions follow from the parameters and from a guess of the spectrum.
    Without one, every share has an interval over several spectra.

    Parameters
    ----------
    spectrum : str, sequence of float or None, default=None
        The `guess` of `Question`. All other parameters have the names and defaults of `Question`.
    """
    question = Question(
        n_rows=n_rows, n_features=n_features, n_components=n_components, epsilon=epsilon, delta=delta,
        adjacency=adjacency, window=window, release_every=release_every, center=center, guess=spectrum,
        row_norm=row_norm, typical_norm=typical_norm, rows_per_person=rows_per_person,
    )  # fmt: skip
    unit, matrices = question.row_norm**2, _SQUARE_BYTES * n_features**2
    is_wide, curve = matrices > _MATRICES, None
    if is_wide and window is not None:
        raise UsageError(f"window={window}: no algorithm for windows of {n_features} features. Use window=None")
    if is_wide:  # without matrices of all pairs of features, in prediction as in the run
        predicted = [*sketch(question), *oja(question)]
    else:
        curve = Curve(question.spectrum, question.n_components)
        predictors = (*ONCE, *(STREAM if window is None else WINDOW))
        predicted = [p for predict in predictors for p in predict(question, curve)]
    if question.guess is None:
        predicted = over_guesses(question, curve, predicted)
    found = []
    for p in predicted:  # in units of row_norm = 1
        std, regret = (value and value * unit for value in (p.noise_std, p.regret_per_row))
        found.append(replace(p, noise_std=std, regret_per_row=regret))
    if rows_per_person is not None:
        found = [made for p in found if (made := _of_people(p)) is not None]
    order = sorted(found, key=lambda p: (p.serves != question.purpose, not p.is_certain, -p.captured))
    if is_wide:
        recommended = found[0] if found[0].releases <= _SKETCHED else order[0]
        which = (
            f"PrivateSketch captures the most up to {_SKETCHED} releases, and beyond, the larger of two predictions "
            "counts" if rows_per_person is None else "only PrivateOja protects people"
        )  # fmt: skip
        reason = (
            f"matrices of all pairs of {n_features} features take about {matrices / 1e9:.2g} GB; without them, "
            f"{which}; the last release captures {recommended.share_text}"
        )
    else:
        recommended, reason = _recommend(order, question)
    warnings, advice = _warnings(question, recommended, curve), _advice(question, recommended, found)
    return Plan(question, tuple(order), recommended, reason, tuple(warnings), tuple(advice))


def _of_people(prediction: Prediction) -> Prediction | None:
    """Return the prediction for an algorithm that protects people; None if there is none."""
    algorithm: Any = prediction.algorithm
    try:
        if isinstance(algorithm, Tumbling):
            inner: Any = algorithm.mechanism
            algorithm = replace(algorithm, mechanism=replace(inner, unit=Person()))
        else:
            algorithm = replace(algorithm, unit=Person())
    except (TypeError, UsageError):  # it has no such parameter, or refuses it
        return None
    return replace(prediction, algorithm=algorithm, settings={**prediction.settings, "unit": Person()})


def _cell(prediction: Prediction) -> str:
    if not prediction.is_certain:
        return "cannot tell"
    low, high = prediction.captured_interval or (0.0, 0.0)
    return f"{prediction.captured:.4f}" + (f" ({low:.3f} to {high:.3f})" if low < high else "")


def over_guesses(question: Question, curve: Curve | None, predicted: Sequence[Prediction]) -> list[Prediction]:
    """Return predictions with the interval of shares over all guesses of spectrum and norm."""
    norms = NORMS if question.typical_norm is None else (min(1.0, question.typical_norm / question.row_norm),)
    cases: list[tuple[Question, Curve | None]] = []
    for guess in GUESSES:  # one curve each, which the norms only scale
        asked = [replace(question, guess=guess, typical_norm=norm * question.row_norm) for norm in norms]
        first = None if curve is None else Curve(asked[0].spectrum, question.n_components)
        cases += [(q, first and first.scaled(float(q.spectrum[0] / asked[0].spectrum[0]))) for q in asked]

    def share(p: Prediction, other: Question, of: Curve | None) -> float:
        if of is None or curve is None or p.name == "PrivateOja":
            return next((sketch if p.name == "PrivateSketch" else oja)(other)).captured
        if not p.centers:
            return next(one.captured for one in covariances(other, of) if one.name == p.name)
        # Of a centered Gram matrix: the noise that loses as much, with that of the mean, which depends on its length.
        return float(of.captured(curve.noise_of(p.captured) * other.spread(1.0, 1e9) / question.spread(1.0, 1e9)))

    found = []
    for p in predicted:
        if p.is_certain and not isinstance(p.algorithm, ExactSubspace):
            # The question itself has the middle spectrum and norm; its share is in the interval up to interpolation.
            shares = [p.captured, *(share(p, *case) for case in cases)]
            p = replace(p, captured_interval=(min(shares), max(shares)))
        found.append(p)
    return found


def _recommend(found: Sequence[Prediction], question: Question) -> tuple[Prediction, str]:
    """Return the candidate of least regret for a stream, else of the largest captured share, and the reason."""
    candidates = [p for p in found if p.serves == question.purpose]
    if question.center:
        # What cannot center may lose a component to the mean: it must be better for every guess.
        others = [p for p in candidates if p.centers]
        high = max(((p.captured_interval or (0.0, p.captured))[1] for p in others), default=-1.0)
        sure = [p for p in candidates if p.is_certain and (p.captured_interval or (p.captured,))[0] > high]
        candidates = [p for p in candidates if p.centers or p in sure]
    if question.purpose == "stream":
        # Regret counts waiting for the first release as well as noise, so it is compared and not the last release.
        scored = {p: p.regret_per_row for p in candidates if p.regret_per_row is not None and p.is_certain}
        unit = question.best * question.row_norm**2
        good = [p for p, regret in scored.items() if regret <= min(scored.values()) + _EQUAL * unit]
        chosen = min(good, key=lambda p: (-p.releases, math.inf if p.noise_std is None else p.noise_std))
        every = chosen.settings.get("release_every")
        return chosen, (
            f"least expected regret, {chosen.regret_per_row:.3g} a row of {unit:.3g} that can be earned, with a "
            f"release {f'every {every} rows' if every else f'{chosen.releases} times'}; the last one captures "
            f"{chosen.share_text}"
        )
    most = max(p.captured for p in candidates)
    good = [p for p in candidates if p.captured >= most - _EQUAL]
    if question.purpose == "window":
        # For rows of one distribution, the loss averaged over a window is that of its last release, with any method.
        tumbling = [p for p in found if p.name.startswith("Tumbling[Adaptive") and p.centers == question.center]
        smoothed = max((p.captured for p in candidates if p.settings["method"] == "smoothed"), default=1.0)
        if tumbling and 1.0 - smoothed >= _LOST and tumbling[0].captured > most:
            return tumbling[0], f"sliding windows capture {most:.1%} of the best subspace at most; {tumbling[0].note}"
        # The window itself, if its rows or the sums between its releases fit into memory; else a sum of bounded memory.
        width, d = question.rows, question.n_features
        held = min(4 * width * d, width // good[0].settings["release_every"] * 16 * svec_size(d))
        order = ["smoothed", "ring", "histogram", "forgetting"]
        if held > _HELD:
            order = ["histogram", "forgetting", "ring", "smoothed"]
        chosen = min(good, key=lambda p: order.index(p.settings["method"]))
        return chosen, (
            f"captures {chosen.share_text} of the best subspace of the window (the most is {most:.1%}), with "
            f"{chosen.releases} releases; {chosen.note}"
        )
    # How much an adaptive mechanism gains cannot be told, but it hardly loses: it is chosen where something is to gain.
    known = [p for p in candidates if p.is_certain]
    unknown = [p for p in candidates if not p.is_certain]
    most = max(p.captured for p in known)
    if unknown and 1.0 - most > _LOSES and question.n_features > 1:
        return unknown[0], f"GaussianCovariance captures {most:.1%} of the best subspace; {unknown[0].note}"
    # Those that spend no delta first, then those with a Gram matrix.
    good = [p for p in known if p.captured >= most - _EQUAL]
    chosen = min(good, key=lambda p: ("delta" in p.settings, isinstance(p.algorithm, ExactSubspace)))
    pure = "" if "delta" in chosen.settings else ", and spends no delta"
    return chosen, f"captures {chosen.share_text} of the best subspace (the most is {most:.1%}){pure}"


def _warnings(q: Question, best: Prediction, curve: Curve | None) -> list[str]:
    """Return expected failures, with the number of rows that would suffice."""
    texts, k = [], q.n_components
    # A random subspace captures k / d of the energy, as a share of the best one's.
    chance = float(q.spectrum.sum()) * k / q.n_features / q.best
    if best.captured < min(GOOD, max(DROWNED, 0.5 * (1.0 + chance))):
        texts.append(
            f"the noise drowns the signal: {best.name} is expected to capture {best.captured:.1%} of what {k} "
            f"components can, and a random subspace captures {chance:.1%}"
        )
    if best.captured < GOOD and (needed := _rows_needed(q, curve, best)) is not None:
        whole = "rows" if q.window is None else "rows in the window"
        by = "" if best.is_certain else " by GaussianCovariance"
        step = 10 ** max(0, len(str(needed)) - 2)  # two digits, rounded up
        needed = -(-needed // step) * step
        texts.append(f"for {GOOD:.0%} captured variance{by} about {needed} {whole} are needed; there are {q.rows}")
    if best.noise_std is not None and curve is not None:
        # Weyl: noise of spectral norm s moves no eigenvalue by more than s.
        noise, signal = best.noise_std * curve.norm / q.row_norm**2, q.rows * q.spectrum[:k]
        if (signal < noise).any():
            first = int(np.argmax(signal < noise))
            texts.append(
                f"components from number {first + 1} on lie below the noise ({signal[first]:.3g} against {noise:.3g} "
                "row_norm**2): ask for fewer, or bring more rows"
            )
    return texts + settings_warnings(best.algorithm.guarantee, q.n_rows)


def _rows_needed(question: Question, curve: Curve | None, best: Prediction) -> int | None:
    """Return the rows (in a window, if there is one) for which the recommended kind of algorithm captures a good share.

    A mechanism counts as `GaussianCovariance`. None for `PrivateOja` and `PrivateSketch`, which release no Gram matrix.
    """
    settings, every = question.centered_settings, question.release_every
    if curve is None or (best.noise_std is None and best.serves != "once"):
        return None

    def std(rows: int) -> float:
        if best.serves == "once":
            return GaussianCovariance(**settings).noise_std(question.n_features)
        if best.serves == "stream":
            # The number of releases is a power of two, so that few horizons have to be fitted.
            step = max(every or 1, -(-rows // 1024))
            horizon = step * 2 ** max(0, math.ceil(math.log2(rows / step)))
            return PrivateFPL(**settings, horizon=horizon, release_every=step).noise_std(rows)
        step = min(every or max(1, rows // 100), rows)
        width = rows // step * step
        return SlidingWindowPCA(**settings, window=width, method="histogram", release_every=step).noise_std(4 * width)

    try:
        return curve.rows_for(GOOD, std)
    except UsageError:
        return None


def _advice(q: Question, best: Prediction, found: Sequence[Prediction]) -> list[str]:
    """Return advice on choices that the planner cannot make."""
    texts, norm, typical = [], q.row_norm, q.typical_norm
    square = q.typical_square if q.guess is None or isinstance(q.guess, str) else float(q.spectrum.sum()) / q.weight
    if q.rows_per_person is not None:
        text = (
            f"of {q.rows_per_person:g} rows a person, {q.weight:.0%} of the weight counts by this guess; keep "
            "Person(budget=1), which is close to the best budget for people with 3 to 2000 rows"
        )
        if typical is not None and (budget := 2.0 * (typical / norm) ** 2) < 1.0:
            text += f". Rows are short here: budget={budget:.2g} has {1.0 / budget:.2g} times less noise"
        texts.append(text)
    if typical is not None and _LONGER * typical < norm:
        texts.append(
            f"rows are of typical norm {typical:g}: row_norm={_LONGER * typical:g}, {_LONGER:g} times it, would have "
            f"{(norm / (_LONGER * typical)) ** 2:.3g} times less noise. Longer rows are then shortened for good, which "
            "loses their variance: keep the norm if rare long rows matter"
        )
    elif typical is not None and typical > 2.0 * norm:
        texts.append(
            f"row_norm={norm:g} scales almost every row down (typical norm {typical:g}): directions stay, lengths are "
            "lost; raise it towards the typical norm if long rows should count for more"
        )
    elif square < 0.2:
        texts.append(
            f"rows use {square:.1%} of row_norm**2: a smaller row_norm, or tighter public bounds, would lower the "
            "noise beside the signal in that proportion"
        )
    if q.window is not None and best.serves == "window":
        tumbling = max((p for p in found if p.name.startswith("Tumbling")), key=lambda p: p.captured)
        texts.append(
            f"for rows that keep to one distribution, {tumbling.name} with release_every={q.rows} has less noise: it "
            f"captures {tumbling.captured:.1%} of the last full window, with a release a window"
        )
    return texts
