"""The story of the plan: what was expected before a row was spent, beside what came of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streampca.admission import Admission
from streampca.linalg.lattice import GramSum
from streampca.linalg.svec import unpack_entries
from streampca.linalg.types import FloatArray
from streampca.planning import Prediction, Question, plan
from streampca.privacy.randomness import Randomness
from streampca.regret import RegretLog
from streampca.rows import RowSource
from streampca.scenarios.runner import Context
from streampca.sources import flights
from streampca.sources.synthetic import spiked
from streampca.stream import Stream

#: Releases that the error of a mechanism is averaged over.
_DRAWS = 8


def run(context: Context) -> dict[str, dict[str, float]]:
    """Plan with the spectrum of the rows, then run every candidate on them.

    ``error_ratio`` is predicted over measured spectral error (mean over a few
    releases), ``captured_off`` and ``regret_off`` are absolute differences as
    shares of what can be earned; ``all`` has the worst over candidates that
    release Gram matrices.
    """
    every = int(context.params["release_every"])
    found: dict[str, dict[str, float]] = {}
    sources = {"spiked": spiked(context.rows, 20, 3, seed=context.seed), "flights": flights.rows()}
    for name, source in sources.items():
        # Rows of scenarios are public. A user would guess; what is tested here is what follows from the guess.
        rows = _admitted(source, context.rows)
        gram = unpack_entries(GramSum.of(rows).packed(), rows.shape[1])
        made = plan(
            n_rows=len(rows), n_features=rows.shape[1], n_components=3, epsilon=1.0, delta=1e-6, release_every=every,
            spectrum=np.maximum(np.linalg.eigvalsh(gram / len(rows))[::-1], 0.0),
        )  # fmt: skip
        for prediction in made.predictions:
            key = f"{name} {prediction.label}"
            found[key] = _compare(prediction, made.question, rows, gram, context.seed, every)
    return found | {"all": _summary(found)}


def _admitted(source: RowSource, count: int) -> FloatArray:
    """So many rows as the gate of a stream would admit them, so that all candidates get the same."""
    gate = Admission(bounds=source.bounds, features=source.features, on_bad_row="zero")
    out, held = [], 0
    for block in source.blocks():
        out.append(gate.block(block[: count - held], held + 1)[0])
        held += len(out[-1])
        if held == count:
            break
    return np.concatenate(out)


def _compare(
    prediction: Prediction, question: Question, rows: FloatArray, gram: FloatArray, seed: int, every: int
) -> dict[str, float]:
    best, n = question.best, len(rows)
    values: dict[str, float] = {}
    if prediction.serves == "once":
        errors, shares = [], []
        for draw in range(_DRAWS):
            release = prediction.algorithm.release(rows, Randomness.from_seed(seed + draw))
            shares.append(release.subspace.captured(gram) / (best * n))
            if release.has_gram:
                errors.append(_norm(release.gram - gram))
        captured = float(np.mean(shares))
    else:
        stream = Stream(prediction.algorithm, seed=seed, regret=RegretLog(every=n))
        errors = list(_errors(stream, rows, every))
        captured = stream.subspace.captured(gram) / (best * n)
        if prediction.regret_per_row is not None:
            measured = stream.regret.now().average
            off = abs(measured - prediction.regret_per_row) / best
            values = {"predicted_regret": prediction.regret_per_row, "regret_per_row": measured, "regret_off": off}
    values |= {
        "predicted_captured": prediction.captured,
        "captured": captured,
        "captured_off": abs(captured - prediction.captured),
    }
    if prediction.spectral_error is not None and errors:
        measured = float(np.mean(errors))
        values |= {
            "predicted_error": prediction.spectral_error,
            "spectral_error": measured,
            "error_ratio": prediction.spectral_error / measured,
        }
    return values


def _errors(stream: Stream, rows: FloatArray, every: int) -> Iterator[float]:
    """Errors of a few releases far apart: the norm of one noise matrix varies."""
    n, d = rows.shape
    looks = {n - i * (n // 8) // every * every for i in range(4)}
    total = GramSum(d)
    for start in range(0, n, every):
        block = rows[start : start + every]
        total = total.add(block)
        for release in stream.push_many(block).releases:
            if release.has_gram and release.t in looks:
                yield _norm(release.gram - unpack_entries(total.packed(), d))


def _norm(matrix: FloatArray) -> float:
    return float(np.abs(np.linalg.eigvalsh(matrix)).max())


def _summary(found: dict[str, dict[str, float]]) -> dict[str, float]:
    """The worst of what is predicted for any rows: of Gram matrices, that is."""
    sums = [values for values in found.values() if "error_ratio" in values]
    return {
        "least_error_ratio": min(values["error_ratio"] for values in sums),
        "most_error_ratio": max(values["error_ratio"] for values in sums),
        "most_captured_off": max(values["captured_off"] for values in sums),
        "most_regret_off": max(values.get("regret_off", 0.0) for values in sums),
    }
