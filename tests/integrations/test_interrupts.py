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
from streampca.store.ledger import Account

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
    return None if model.release is None else model.release.to_json()


@pytest.mark.parametrize(
    "make",
    [
        lambda: PrivatePCA(seed=1, release_every=2, ledger="ledger.db", data_set="people"),
        lambda: PrivateWindowPCA(seed=1, window=4, release_every=2),
        lambda: PrivateOjaPCA(seed=1, batch_size=2),
        lambda: PrivatePCA(seed=1, center=True, bounds=(-3.0, 3.0), features=list("abc"), on_bad_row="zero"),
    ],
    ids=["fpl", "window", "oja", "centered"],
)
@pytest.mark.parametrize("fed", [0, 1, 4, 5])
@STEPS
def test_learn_one_is_before_or_after(
    make: Callable[[], Any], fed: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid: list[bytes] = []
    monkeypatch.setattr(Account, "debit", lambda self, guarantee, start: paid.append(start))
    rows, whole, expected = ROWS[:8], make(), []
    for x in rows:
        expected.append(shown(whole))
        whole.learn_one(x)
    expected.append(shown(whole))

    def attempt(at: int) -> list[int]:
        model = make()
        for x in rows[:fed]:
            model.learn_one(x)
        paid.clear()
        with broken_off(at) as lines:
            model.learn_one(rows[fed])
        assert model.t in (fed, fed + 1)
        if model.t == fed:
            assert shown(model) == expected[fed]
        assert list(model.transform_one(rows[0])) == ["pc0", "pc1"]
        for x in rows[model.t :]:
            model.learn_one(x)
            assert shown(model) == expected[model.t]
        assert len(set(paid)) <= 1
        return lines

    everywhere(attempt, step if fed else 4 * step, 1 + fed % step)  # the first row runs ten times the lines


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

    everywhere(attempt, 4 * step)


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


@pytest.mark.parametrize("fed", [0, 2])
@STEPS
def test_partial_fit_counts_a_batch_once_or_not_at_all(fed: int, step: int) -> None:
    rows = np.random.default_rng(0).normal(size=(4, 5, 3))
    whole, expected = SklearnPCA(random_state=1), {}
    for i, batch in enumerate(rows, 1):
        expected[5 * i] = whole.partial_fit(batch).release_.to_json()

    def attempt(at: int) -> list[int]:
        pca = SklearnPCA(random_state=1)
        for batch in rows[:fed]:
            pca.partial_fit(batch)
        with broken_off(at) as lines:
            pca.partial_fit(rows[fed])
        stream = vars(pca).get("_stream")
        learnt = 0 if stream is None else stream.t
        assert learnt in (5 * fed, 5 * fed + 5)
        assert getattr(pca, "n_samples_seen_", 0) in (learnt, 5 * fed)
        for batch in rows[learnt // 5 :]:
            pca.partial_fit(batch)
            assert pca.release_.to_json() == expected[pca.n_samples_seen_]
        assert pca.n_samples_seen_ == 20
        return lines

    everywhere(attempt, 2 * step if fed else 12 * step)
