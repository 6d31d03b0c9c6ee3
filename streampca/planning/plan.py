"""The planner: predict all that applies, recommend one, warn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streampca.errors import BadParameter
from streampca.linalg.types import FloatArray
from streampca.planning import once, streams, windows  # noqa: F401  (they register what they predict)
from streampca.planning.advice import advice_for, warnings_for
from streampca.planning.curve import Curve
from streampca.planning.predictions import REGISTRY, Prediction
from streampca.planning.question import Question, ask
from streampca.privacy.budget import Adjacency

#: Candidates closer than this in captured variance or in regret count as equal.
_EQUAL = 0.003
#: Bytes that a window may take before a histogram of it is preferred.
_HELD = 2**28


@dataclass(frozen=True)
class Plan:
    """What to expect, and what to use.

    Attributes
    ----------
    question : what was asked.
    predictions : all candidates: those that serve the purpose first, best first.
    recommended : one of them.
    reason : why that one.
    warnings : what will not work, with the number of rows that would do.
    advice : how to choose what the planner cannot.
    """

    question: Question
    predictions: tuple[Prediction, ...]
    recommended: Prediction
    reason: str
    warnings: tuple[str, ...]
    advice: tuple[str, ...]

    @property
    def algorithm(self) -> Any:
        """The recommended algorithm or mechanism."""
        return self.recommended.algorithm

    def table(self) -> list[dict[str, str]]:
        """One row of text a candidate, for printing."""
        return [_row(p) for p in self.predictions]

    def __str__(self) -> str:
        rows = self.table()
        widths = {key: max(len(key), *(len(row[key]) for row in rows)) for key in rows[0]}
        lines = ["  ".join(key.ljust(width) for key, width in widths.items()).rstrip()]
        lines += ["  ".join(row[key].ljust(width) for key, width in widths.items()).rstrip() for row in rows]
        lines += [f"{p.label}: {p.note}" for p in self.predictions if p.note]
        lines += ["", f"assumed: {self.question.assumed}", f"use: {self.recommended.code}", f"why: {self.reason}"]
        lines += [f"warning: {text}" for text in self.warnings] + [f"advice: {text}" for text in self.advice]
        return "\n".join(lines)


def plan(
    *,
    n_rows: int,
    n_features: int,
    n_components: int,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = "zero-out",
    window: int | None = None,
    release_every: int | None = None,
    spectrum: str | Sequence[float] | FloatArray = "decaying",
    row_norm: float = 1.0,
    typical_norm: float | None = None,
) -> Plan:
    """Predict noise, error, captured variance, regret, memory and time of everything that applies.

    No row is looked at, and no budget is spent: predictions follow from the
    parameters and from a guess of the spectrum.

    Parameters
    ----------
    n_rows, n_features, n_components : n, d and k.
    epsilon, delta, adjacency : the budget.
    window : rows in the window, for a subspace of the last rows; left out, of all rows.
    release_every : rows between releases; left out, the planner chooses. At
        least ``n_rows`` means one release, of all rows.
    spectrum : eigenvalues of the mean of a a^T in units of row_norm**2
        (descending; the rest are 0), or a guess by name: ``"decaying"`` (1/j),
        ``"steep"`` (1/j**2), ``"flat"`` or ``"spiked"`` (k equal ones over a tenth of the variance).
    row_norm : norm onto which rows will be scaled.
    typical_norm : public guess of the norm of a typical row, for advice on
        row_norm and for the scale of a named spectrum.

    Raises
    ------
    BadParameter
        If a parameter is outside its domain.
    """
    question = ask(
        n_rows=n_rows, n_features=n_features, n_components=n_components, epsilon=epsilon, delta=delta,
        adjacency=adjacency, window=window, release_every=release_every, spectrum=spectrum, row_norm=row_norm,
        typical_norm=typical_norm,
    )  # fmt: skip
    if question.best <= 0.0:
        raise BadParameter("the spectrum leaves nothing to capture")
    curve = Curve(question.spectrum, question.n_components)
    found = [p for predict in REGISTRY for p in predict(question, curve)]
    purpose = "window" if window is not None else "once" if question.release_every == n_rows else "stream"
    order = sorted(found, key=lambda p: (p.serves != purpose, -p.captured))
    recommended, reason = _recommend([p for p in order if p.serves == purpose], question, purpose)
    return Plan(
        question,
        tuple(order),
        recommended,
        reason,
        tuple(warnings_for(question, recommended, curve)),
        tuple(advice_for(question, recommended, typical_norm)),
    )


def _recommend(candidates: list[Prediction], question: Question, purpose: str) -> tuple[Prediction, str]:
    """The least regret for a stream, else the most captured; among equals the one that promises or releases more."""
    if purpose == "stream":
        scored = [p for p in candidates if p.regret_per_row is not None]
        least = min(p.regret_per_row or 0.0 for p in scored)
        unit = question.best * question.row_norm**2
        good = [p for p in scored if (p.regret_per_row or 0.0) <= least + _EQUAL * unit]
        chosen = min(good, key=lambda p: (-p.releases, p.noise_std if p.noise_std is not None else float("inf")))
        reason = (
            f"least expected regret, {chosen.regret_per_row:.3g} a row of {unit:.3g} that can be earned, with a "
            f"release {_how_often(chosen, question)}; the last one captures {chosen.captured:.1%}"
        )
        return chosen, reason
    most = max(p.captured for p in candidates)
    good = [p for p in candidates if p.captured >= most - _EQUAL]
    if purpose == "window":
        # The window itself, if its rows can be held; else in memory that does not grow with it; then what fades.
        order = ["ring", "histogram", "forgetting"]
        chosen = min(good, key=lambda p: (p.memory > _HELD, order.index(p.settings["method"])))
        return chosen, (
            f"captures {chosen.captured:.1%} of the best subspace of the window (the most is {most:.1%}), with "
            f"{chosen.releases} releases in {_bytes(chosen.memory)}; {chosen.note}"
        )
    chosen = min(good, key=lambda p: ("delta" in p.settings, p.spectral_error is None, p.spectral_error or 0.0))
    pure = "" if "delta" in chosen.settings else ", and spends no delta"
    return chosen, f"captures {chosen.captured:.1%} of the best subspace (the most is {most:.1%}){pure}"


def _how_often(p: Prediction, question: Question) -> str:
    every = p.settings.get("release_every")
    return f"every {every} rows" if every else f"{p.releases} times"


def _row(p: Prediction) -> dict[str, str]:
    return {
        "candidate": p.label,
        "captured": f"{p.captured:.4f}",
        "regret": "-" if p.regret_per_row is None else f"{p.regret_per_row:.3g}",
        "noise": "-" if p.noise_std is None else f"{p.noise_std:.4g}",
        "error": "-" if p.spectral_error is None else f"{p.spectral_error:.4g}",
        "releases": str(p.releases),
        "memory": _bytes(p.memory),
        "time": _seconds(p.seconds),
    }


def _bytes(n: int) -> str:
    value, unit = float(n), "B"
    for bigger in ("KB", "MB", "GB"):
        if value < 1000.0:
            break
        value, unit = value / 1000.0, bigger
    return f"{value:.3g} {unit}"


def _seconds(s: float) -> str:
    return f"{s:.2g} s" if s < 100.0 else f"{s / 60.0:.0f} min" if s < 7200.0 else f"{s / 3600.0:.0f} h"
