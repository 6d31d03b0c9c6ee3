"""Pairs of rows that differ between neighbors, far apart for an algorithm or a mechanism."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from streampca.auditing.runs import Row
from streampca.linalg.types import FloatArray
from streampca.processors.base import Algorithm
from streampca.stream.stream import Stream

Pairs = dict[str, tuple[Row, Row]]
#: A norm that adaptive algorithms clip to.
SHORT = 2.0**-6


def _unit(row: FloatArray) -> FloatArray:
    """Scale a row just below norm 1, so that it is not clipped."""
    return np.asarray(row / np.linalg.norm(row) * (1.0 - 1e-9))


def _played(stream: Stream, component: int = 0) -> FloatArray:
    """Return a direction of the current subspace, or the first axis before there is any."""
    if stream.t == 0:
        return np.asarray(np.eye(stream.engine.now.admission.n_features or 1)[0])
    processor = stream.engine.processor
    return _unit((processor.basis if hasattr(processor, "basis") else stream.engine.subspace.basis)[:, component])


def _aside(stream: Stream, weights: tuple[float, float] = (1.0, 1.0)) -> FloatArray:
    """Combine the leading direction of the current subspace with one orthogonal to it."""
    first = _played(stream)
    axis = np.eye(first.size)[int(np.argmin(np.abs(first)))]
    return _unit(weights[0] * first + weights[1] * _unit(axis - (axis @ first) * first))


def _second(stream: Stream) -> FloatArray:
    """Return the second direction of the current subspace, or one orthogonal to the first."""
    basis = getattr(stream.engine.processor, "basis", None) if stream.t else None
    return _aside(stream, (0.0, 1.0)) if basis is None or basis.shape[1] < 2 else _played(stream, 1)


def _off(stream: Stream) -> FloatArray:
    """Return a direction orthogonal to the current subspace, or its last one if there is none."""
    basis = stream.engine.subspace.basis
    left = np.eye(len(basis)) - basis @ basis.T
    return _unit(left[:, int(np.argmax(np.diag(left)))] if basis.shape[1] < len(basis) else basis[:, -1])


def changes(subject: Any, d: int, adjacency: str | None = None) -> Pairs:
    """Return pairs of rows that are far apart for Gram matrices, gradients and clipping."""
    axes, some, nothing = np.eye(d), np.random.default_rng(d).normal(size=d), np.zeros(d)
    one, two = axes[0], axes[min(1, d - 1)]
    both, some = (one + two) / np.linalg.norm(one + two), some / np.linalg.norm(some)
    streaming = isinstance(subject, Algorithm)
    if (adjacency or subject.guarantee.adjacency) == "replace":
        found: Pairs = {
            "e1 against e2": (two if d > 1 else nothing, one),
            "an off-diagonal change": ((one - two) * math.sqrt(0.5), both),
            "2 e1 against a long row": (1e200 * some, 2.0 * one),
        }
        if streaming and d > 1:
            aside = partial(partial, _aside)
            found |= {
                "two sides of the current basis": (aside(weights=(1.0, -1.0)), _aside),
                "none against aside of the current basis": (nothing, _aside),
                "in and off the current basis": (aside(weights=(0.0, 1.0)), _played),
                "two current directions": (_second, _played),
                "off and in the current subspace": (_off, _played),
                "two sides, clipped": (aside(weights=(0.3, -0.954)), aside(weights=(0.3, 0.954))),
            }
        return found
    rows: dict[str, Row] = {
        "e1": one, "(e1 + e2)/sqrt(2)": both, "a random row": some, "2 e1": 2.0 * one, "a long row": 1e200 * some,
    }  # fmt: skip
    if streaming:
        rows |= {"the current basis": _played} | ({"aside of the current basis": _aside} if d > 1 else {})
    gone: Pairs = {"the current basis, removed": (_played, nothing)} if hasattr(subject, "plan") else {}
    return {name: (nothing, row) for name, row in rows.items()} | gone


def another_norm(subject: Any, d: int) -> Pairs:
    """Return `changes` and rows of another norm, which the histogram of norms requires under replace."""
    # Norms are edges of its bins, so that a row that is just clipped counts in full.
    one, two = np.eye(d)[:2]
    others: Pairs = {"another norm": (np.zeros(d), one)}
    if subject.adjacency == "replace":
        others = {f"norm 1 for {norm}": (norm * two, one) for norm in (0.25, SHORT)}
    return changes(subject, d) | others


def centered(subject: Any, d: int) -> Pairs:
    """Return a row and a bad row, which has no constant; under replace, unit rows far apart together with their sum."""
    if subject.guarantee.adjacency == "zero-out":
        bad = np.full(d, np.nan)
        return {"a zero row in its place": (bad, np.eye(d)[0]), "twice as long": (bad, 2.0 * np.ones(d))}
    # At this angle square and sum together move most.
    first, other = np.eye(d)[0], np.zeros(d)
    other[:2] = (-0.125, math.sqrt(1.0 - 0.125**2)) if d > 1 else -1.0
    return {"the largest move": (first, other[:d]), "opposite rows": (first, -first)}


def boxed(subject: Any, d: int) -> Pairs:
    """Return rows of numbers of all sizes; under replace, two corners of any box."""
    bad = np.full(d, np.nan)
    replaced = subject.guarantee.adjacency == "replace"
    first, other = (np.ones(d), np.resize([1e9, -1e9], d)) if replaced else (bad, bad)
    return {
        "a row with all magnitudes": (first, np.geomspace(-1e-9, -1e9, d)),
        "a corner of any box": (other, np.full(d, 1e9)),
        "a row of tiny numbers": (bad, np.full(d, 1e-300)),
    }


def entries(subject: Any, d: int) -> Pairs:
    """Return rows whose products are far apart in l1 norm: halves of equal entries."""
    if d == 1:
        return changes(subject, d)
    turn, half = 0.4 * math.pi, np.ones((2, d // 2)) * math.sqrt(2.0 / d)
    one, other = (np.concatenate([math.cos(x) * half[0], math.sin(x) * half[1]]) for x in (turn, turn + 0.5 * math.pi))
    worst = (other, one) if subject.adjacency == "replace" else (np.zeros(d), math.sqrt(0.5) * np.ravel(half))
    return {**changes(subject, d), "equal entries": worst}


def lines(subject: Any, d: int) -> Pairs:
    """Return rows that complete a span or spoil it."""
    first = np.zeros(d) if subject.adjacency == "zero-out" else np.eye(d)[1]
    far = np.arange(1.0, d + 1.0)
    rows = {"e1": np.eye(d)[0], "a far line": far, "tiny": 5e-324 * np.ones(d), "huge": 1e300 * far}
    return {name: (first, row) for name, row in rows.items()}


def deciding(subject: Any, d: int) -> Pairs:
    """Return rows that decide the vote of their block: for one of two popular cells, or for a cell of its own."""
    one, two = np.eye(d)[0], np.eye(d)[1]
    nothing, own = one if subject.adjacency == "replace" else np.zeros(d), (one + two) * math.sqrt(0.5)
    return {
        "a popular cell for another": (nothing, two), "a cell of its own": (nothing, own), "or back": (own, nothing),
    }  # fmt: skip
