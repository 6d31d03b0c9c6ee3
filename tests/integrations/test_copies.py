"""Copies of models that learn: other runs, with noise of their own, which a ledger pays for."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from runs import payments

import streampca as sp
from streampca.errors import BudgetExhaustedError
from streampca.river import PrivateOjaPCA, PrivatePCA, PrivateWindowPCA
from streampca.sklearn import PrivatePCA as SklearnPCA

D = 20
NAMES = [f"x{j:02d}" for j in range(D)]
COPIERS: list[Callable[[Any], Any]] = [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))]
RIVER: list[tuple[Any, dict[str, Any]]] = [
    (PrivatePCA, {"center": False, "release_every": 1}),  # the noise is that of the Gram matrix
    (PrivatePCA, {"center": False, "release_every": 3}),
    (PrivatePCA, {"center": False, "release_every": 1, "horizon": 60}),
    (PrivateWindowPCA, {"window": 20, "release_every": 2}),
]
PAIRS = ((0, 1), (1, 2), (0, 2))
OJA: tuple[Any, dict[str, Any]] = (PrivateOjaPCA, {"batch_size": 5})


def rows(count: int, seed: int) -> Any:
    made = np.random.default_rng(seed).normal(size=(count, D)) / np.sqrt(D)
    return made / np.maximum(1.0, np.linalg.norm(made, axis=1))[:, None]


def learn(model: Any, given: Any) -> None:
    for row in given:
        model.learn_one(dict(zip(NAMES, row, strict=True)))


every_copier = pytest.mark.parametrize("copier", COPIERS, ids=["deepcopy", "pickle"])
model_ids = lambda value: str(getattr(value, "__name__", value))  # noqa: E731


@every_copier
@pytest.mark.parametrize(("adapter", "options"), [*RIVER, OJA], ids=model_ids)
@pytest.mark.parametrize("seed", [None, 7])
def test_equal_rows_give_other_releases_unless_seeded(
    adapter: Any, options: dict[str, Any], seed: int | None, copier: Any
) -> None:
    first = adapter(n_components=2, seed=seed, row_norm=1.0, **options)
    learn(first, rows(13, 0))
    models = [first, copier(first), copier(copier(first))]
    assert len({model.release.to_json() for model in models}) == 1
    for row in rows(20, 1):
        for model in models:
            learn(model, row[None])
        made = [model.release for model in models]
        if made[0].t == first.t and seed is None:
            projectors = [release.subspace.projector for release in made]
            assert min(np.abs(projectors[i] - projectors[j]).max() for i, j in PAIRS) > 1e-4
        elif made[0].t == first.t:
            assert len({release.to_json() for release in made}) == 1


@every_copier
def test_a_model_in_the_middle_of_partial_fit(copier: Any) -> None:
    first = SklearnPCA(row_norm=1.0, center=False)
    for i in range(5):
        first.partial_fit(rows(40, i))
    models, equal = [first, copier(first), copier(first)], rows(1, 99)
    for model in models:
        model.partial_fit(equal)
    assert len({model.release_.to_json() for model in models}) == 3
    seeded = SklearnPCA(row_norm=1.0, random_state=3).partial_fit(rows(40, 0))
    other = copier(seeded)
    assert seeded.partial_fit(equal).release_.to_json() == other.partial_fit(equal).release_.to_json()


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    with sp.Ledger(tmp_path / "ledger.db") as made:
        made.set_budget("people", sp.Budget(1.6, 1e-6))  # two runs at epsilon 1 cost 1.46, three 1.81
    return tmp_path / "ledger.db"


@every_copier
@pytest.mark.parametrize("seed", [None, 1])
def test_a_copy_pays_before_its_first_row(ledger: Path, copier: Any, seed: int | None) -> None:
    model = PrivatePCA(ledger=str(ledger), data_set="people", release_every=3, seed=seed, row_norm=1.0)
    with pytest.raises(ValueError, match="expected a mapping"):
        model.learn_one(None)
    unfed = copier(model)
    assert payments(ledger, "people") == 0
    learn(model, rows(8, 0))
    assert payments(ledger, "people") == 1
    other = copier(model)
    assert payments(ledger, "people") == 1
    learn(other, rows(1, 1))
    assert payments(ledger, "people") == 2
    learn(other, rows(5, 1))
    learn(model, rows(5, 1))
    assert payments(ledger, "people") == 2
    # The budget does not cover any other: they learn nothing, and these two continue.
    for third in (copier(other), copier(copier(model)), unfed, model.clone()):
        before, release = third.t, third.release and third.release.to_json()
        for learn_more in (learn, lambda model, given: model.learn_many(pd.DataFrame(given, columns=NAMES))):
            with pytest.raises(BudgetExhaustedError):
                learn_more(third, rows(3, 2))
        assert (third.t, third.release and third.release.to_json()) == (before, release)
    learn(model, rows(3, 2))
    assert model.release.t == 15
    assert payments(ledger, "people") == 2
