"""Learning that is interrupted anywhere: the model has absorbed the row, or has not, and `t` counts the rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streampca
from streampca.river import PrivateOjaPCA, PrivatePCA, PrivateWindowPCA
from streampca.sklearn import PrivatePCA as SklearnPCA
from streampca.store.ledger import Account, Ledger

HOME = str(Path(streampca.__file__).parent)
ROWS = [dict(zip("abc", row, strict=True)) for row in np.random.default_rng(0).normal(size=(12, 3)).tolist()]


class Stop(BaseException):
    """As Ctrl-C."""


@contextmanager
def broken_off(at: int) -> Iterator[list[int]]:
    """Raise `Stop` before line number ``at`` that streampca runs; give how many it ran."""
    lines = [0]

    def trace(frame: Any, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(HOME):
            return None
        if event == "line":
            lines[0] += 1
            if lines[0] == at:
                raise Stop
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    except Stop:
        pass
    finally:
        sys.settrace(before)


#: Lines that are tried: more of them in long runs.
STEPS = pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])


def everywhere(attempt: Callable[[int], list[int]], step: int = 1, first: int = 1) -> None:
    at = first
    while attempt(at)[0] >= at:
        at += step
    assert at > 30


def shown(model: Any) -> str | None:
    release = getattr(model, "release_", None) if isinstance(model, SklearnPCA) else model.release
    return None if release is None else release.to_json()


def learn(model: Any, piece: int) -> None:
    if isinstance(model, SklearnPCA):
        model.partial_fit(np.random.default_rng(piece).normal(size=(5, 3)))
    else:
        model.learn_one(ROWS[piece])


def learnt(model: Any) -> int:
    """Pieces learnt. Attributes of an estimator may lag behind its stream until the next call."""
    if not isinstance(model, SklearnPCA):
        return int(model.t)
    stream = vars(model).get("_stream")
    rows = 0 if stream is None else stream.t
    assert getattr(model, "n_samples_seen_", 0) in (rows, rows - 5, 0)
    return int(rows) // 5


@pytest.mark.parametrize(
    "make",
    [
        lambda: PrivatePCA(seed=1, release_every=2, ledger="ledger.db", data_set="people"),
        lambda: PrivateWindowPCA(seed=1, window=4, release_every=2),
        lambda: PrivateOjaPCA(seed=1, batch_size=2),
        lambda: PrivatePCA(seed=1, center=True, bounds=(-3.0, 3.0), features=list("abc"), on_bad_row="zero"),
        lambda: SklearnPCA(random_state=1, ledger="ledger.db", data_set="people"),
    ],
    ids=["fpl", "window", "oja", "centered", "partial_fit"],
)
@pytest.mark.parametrize("fed", [0, 1, 4])
@STEPS
def test_a_row_or_batch_is_learnt_once_or_not_at_all(
    make: Callable[[], Any], fed: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid: list[bytes] = []
    monkeypatch.setattr(Ledger, "existing", lambda path: None)
    monkeypatch.setattr(Account, "debit", lambda self, guarantee, start: paid.append(start))
    whole, expected = make(), [None]
    for piece in range(6):
        learn(whole, piece)
        expected.append(shown(whole))

    def attempt(at: int) -> list[int]:
        model = make()
        for piece in range(fed):
            learn(model, piece)
        paid.clear()
        with broken_off(at) as lines:
            learn(model, fed)
        assert learnt(model) in (fed, fed + 1)
        if learnt(model) == fed:
            assert shown(model) == expected[fed]
        if isinstance(model, PrivatePCA):
            assert list(model.transform_one(ROWS[0])) == ["pc0", "pc1"]
        for piece in range(learnt(model), 6):
            learn(model, piece)
            assert shown(model) == expected[piece + 1]
        assert len(set(paid)) <= 1
        return lines

    # The first row runs ten times the lines, a batch five times.
    everywhere(attempt, step * (1 if fed else 5) * (4 if isinstance(whole, SklearnPCA) else 1), 1 + fed % step)


@STEPS
def test_learn_many_stops_between_releases(step: int) -> None:
    whole = PrivatePCA(seed=1, release_every=2)
    table, expected = pd.DataFrame(ROWS), {0: None}
    for t in range(2, 13, 2):
        whole.learn_many(table[t - 2 : t])
        expected[t] = shown(whole)

    def attempt(at: int) -> list[int]:
        model = PrivatePCA(seed=1, release_every=2)
        with broken_off(at) as lines:
            model.learn_many(table)
        assert shown(model) == expected[model.t]
        model.learn_many(table[model.t :])
        assert shown(model) == expected[12]
        return lines

    everywhere(attempt, 8 * step)


def test_scores_do_not_jump_after_an_interrupt() -> None:
    models = [PrivatePCA(seed=1), PrivatePCA(seed=1)]
    for x in ROWS[:6]:
        for model in models:
            model.learn_one(x)
            model.transform_one(x)
    models[0].learn_one(ROWS[6])
    expected = models[0].transform_one(ROWS[7])

    def attempt(at: int) -> list[int]:
        with broken_off(at) as lines:
            models[1].transform_one(ROWS[7])
        return lines

    models[1].learn_one(ROWS[6])
    everywhere(attempt)
    assert models[1].transform_one(ROWS[7]) == expected
