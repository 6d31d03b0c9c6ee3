"""Learning that is interrupted anywhere: the model has absorbed the row, or has not, and `t` counts the rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from interrupts import every_line

import streampca
from streampca.river import PrivateOjaPCA, PrivatePCA, PrivateWindowPCA
from streampca.sklearn import PrivatePCA as SklearnPCA
from streampca.store import ledger
from streampca.store.ledger import Account

#: Lines of the package, of which long runs try more.
FILES = tuple(map(str, Path(streampca.__file__).parent.rglob("*.py")))
STEPS = pytest.mark.parametrize("step", [12, pytest.param(1, marks=pytest.mark.long)])
ROWS = [dict(zip("abc", row, strict=True)) for row in np.random.default_rng(0).normal(size=(12, 3)).tolist()]


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
        lambda: PrivatePCA(seed=1, release_every=2, ledger="ledger.db", data_set="people", row_norm=1.0),
        lambda: PrivateWindowPCA(seed=1, window=4, release_every=2, row_norm=1.0),
        lambda: PrivateOjaPCA(seed=1, batch_size=2, row_norm=1.0),
        lambda: PrivatePCA(seed=1, center=True, bounds=(-3.0, 3.0), features=list("abc")),
        lambda: SklearnPCA(row_norm=1.0, random_state=1, ledger="ledger.db", data_set="people"),
    ],
    ids=["fpl", "window", "oja", "centered", "partial_fit"],
)
@pytest.mark.parametrize("fed", [0, 1, 4])
@STEPS
def test_a_row_or_batch_is_learnt_once_or_not_at_all(
    make: Callable[[], Any], fed: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid: list[bytes] = []
    monkeypatch.setattr(ledger, "Ledger", lambda path, create: None)
    monkeypatch.setattr(Account, "debit", lambda self, guarantee, start: paid.append(start))
    whole, expected = make(), [None]
    for piece in range(6):
        learn(whole, piece)
        expected.append(shown(whole))

    def begun() -> Any:
        made = make()
        for piece in range(fed):
            learn(made, piece)
        paid.clear()
        return made

    def work() -> None:
        learn(model, fed)

    model, line = begun(), 0
    # The first row runs ten times the lines, a batch five times.
    step *= (1 if fed else 5) * (4 if isinstance(whole, SklearnPCA) else 1)
    for line in every_line(work, *FILES, step=step):  # noqa: B007
        assert learnt(model) in (fed, fed + 1)
        if learnt(model) == fed:
            assert shown(model) == expected[fed]
        if isinstance(model, PrivatePCA):
            assert list(model.transform_one(ROWS[0])) == ["pc0", "pc1"]
        for piece in range(learnt(model), 6):
            learn(model, piece)
            assert shown(model) == expected[piece + 1]
        assert len(set(paid)) <= 1
        model = begun()
    assert line > 30


@STEPS
def test_learn_many_stops_between_releases(step: int) -> None:
    whole = PrivatePCA(seed=1, release_every=2, row_norm=1.0)
    table, expected = pd.DataFrame(ROWS), {0: None}
    for t in range(2, 13, 2):
        whole.learn_many(table[t - 2 : t])
        expected[t] = shown(whole)

    def work() -> None:
        model.learn_many(table)

    model, line = PrivatePCA(seed=1, release_every=2, row_norm=1.0), 0
    for line in every_line(work, *FILES, step=8 * step):  # noqa: B007
        assert shown(model) == expected[model.t]
        model.learn_many(table[model.t :])
        assert shown(model) == expected[12]
        model = PrivatePCA(seed=1, release_every=2, row_norm=1.0)
    assert line > 30


def test_scores_do_not_jump_after_an_interrupt() -> None:
    models = [PrivatePCA(seed=1, release_every=1, row_norm=1.0) for _ in range(2)]
    for x in ROWS[:6]:
        for model in models:
            model.learn_one(x)
            model.transform_one(x)
    models[0].learn_one(ROWS[6])
    expected = models[0].transform_one(ROWS[7])
    models[1].learn_one(ROWS[6])
    assert len(list(every_line(lambda: models[1].transform_one(ROWS[7]), *FILES))) > 29
    assert models[1].transform_one(ROWS[7]) == expected
