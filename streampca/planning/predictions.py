"""One predicted candidate, and the registry of what predicts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from streampca.planning.curve import Curve
from streampca.planning.question import Question

Serves = Literal["stream", "window", "once"]


@dataclass(frozen=True, eq=False)
class Prediction:
    """What is expected of one algorithm or mechanism with given settings.

    Attributes
    ----------
    name : class, e.g. ``"PrivateFPL"``.
    settings : its keywords, ready to be passed on.
    serves : ``"stream"`` (a subspace of all rows, again and again), ``"window"`` (of the last rows)
        or ``"once"`` (one release at the end).
    captured : expected share of the best subspace's reward that the last release captures of its rows.
    noise_std : sd of a diagonal entry of the noise in the last released Gram matrix, in units of
        row_norm**2; None where no Gram matrix is released or its noise is of another law.
    spectral_error : expected ||released - exact Gram matrix||, in the same units; None where none is released.
    regret_per_row : expected regret a row after all rows that is due to privacy and to waiting, in the same units;
        None where there is no stream of releases.
    releases : how many.
    memory : bytes.
    seconds : CPU time for all rows.
    note : what else should be known.
    algorithm : the algorithm or mechanism itself.
    """

    name: str
    settings: dict[str, Any]
    serves: Serves
    captured: float
    noise_std: float | None
    spectral_error: float | None
    regret_per_row: float | None
    releases: int
    memory: int
    seconds: float
    note: str
    algorithm: Any

    @property
    def label(self) -> str:
        """Short and unique among the candidates for one question."""
        which = self.settings.get("noise") or self.settings.get("method") or ""
        endless = "endless" if which and "horizon" in self.settings and self.settings["horizon"] is None else ""
        return " ".join(filter(None, (self.name, which, endless)))

    @property
    def code(self) -> str:
        """Python that builds it, without the parameters all candidates share."""
        inner = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        return f"{self.name}({inner})"


Predictor = Callable[[Question, Curve], Iterator[Prediction]]

#: All predictors, in the order of their registration.
REGISTRY: list[Predictor] = []


def predictor(function: Predictor) -> Predictor:
    """Register a predictor: it yields what applies to a question, and nothing where nothing does."""
    REGISTRY.append(function)
    return function


def common(question: Question) -> dict[str, Any]:
    """Keywords that every private algorithm takes."""
    return {
        "n_components": question.n_components,
        "epsilon": question.epsilon,
        "delta": question.delta,
        "adjacency": question.adjacency,
    }
