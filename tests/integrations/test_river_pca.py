from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from river import compose, datasets, evaluate, linear_model, metrics, stream

import streampca as sp
from streampca.errors import BadRowError, NoReleaseError, UsageError
from streampca.river import PrivateBlockPCA, PrivateOjaPCA, PrivatePCA, PrivateWindowPCA

NAMES = ["b", "a", "d", "c"]


def rows(n: int = 300, seed: int = 0) -> list[dict[str, float]]:
    values = np.random.default_rng(seed).normal(size=(n, 4)) * [0.6, 0.3, 0.05, 0.05]
    return [dict(zip(NAMES, row, strict=True)) for row in values.tolist()]


def learn(model: Any, records: list[Any]) -> str | None:
    for x in records:
        model.learn_one(x)
    return model.release and model.release.to_json()


@pytest.mark.parametrize(
    ("model", "algorithm"),
    [
        (PrivatePCA(n_components=2, epsilon=2.0, delta=1e-5, release_every=7, horizon=900, seed=3, row_norm=1.0),
         sp.PrivateFPL(n_components=2, epsilon=2.0, delta=1e-5, release_every=7, horizon=900)),
        (PrivatePCA(n_components=1, center=False, seed=3, row_norm=1.0), sp.PrivateFPL(n_components=1, epsilon=1.0,
            center=False)),
        (PrivateWindowPCA(n_components=1, window=80, seed=3, row_norm=1.0, release_every=10), sp.SlidingWindowPCA(
            n_components=1, epsilon=1.0, window=80, release_every=10)),
        (PrivateOjaPCA(n_components=1, batch_size=9, seed=3, row_norm=1.0), sp.PrivateOja(
            n_components=1, epsilon=1.0, delta=1e-6, batch_size=9)),
        (PrivateBlockPCA(n_components=2, block=100, seed=3, row_norm=1.0), sp.Tumbling(
            sp.GaussianCovariance(n_components=2, epsilon=1.0), release_every=100)),
    ],
)  # fmt: skip
def test_the_same_releases_as_a_stream(model: Any, algorithm: Any) -> None:
    plain = sp.Stream(algorithm, row_norm=1.0, features=sorted(NAMES), seed=3)
    for x in rows():
        plain.push(x)
    assert learn(model, rows()) == plain.release.to_json()  # type: ignore[union-attr]
    assert model.guarantee == plain.guarantee
    assert model.t == 300
    assert model.release.is_centered == getattr(model, "center", False)
    assert list(model.components.columns) == sorted(NAMES)
    assert np.array_equal(model.components.to_numpy().T, model.release.subspace.basis)
    if model.release.packed is not None:
        assert model.explained_variance_ratio.tolist() == model.release.explained_variance_ratio.tolist()


@pytest.mark.parametrize("adapter", [PrivatePCA, PrivateWindowPCA, PrivateOjaPCA])
def test_tables_and_rows_give_the_same_bits(adapter: Any) -> None:
    one, many, given = adapter(seed=5, row_norm=2.0), adapter(seed=5, row_norm=2.0), rows(400)
    table = pd.DataFrame(given)
    for start, stop in ((0, 1), (1, 50), (50, 350), (350, 350), (350, 400)):
        part = table[start:stop]
        many.learn_many(part[part.columns[::-1]])
    assert learn(one, given) == many.release.to_json()
    scores = many.transform_many(table)
    assert list(scores.index) == list(table.index)
    assert np.allclose(scores.to_numpy(), [list(one.transform_one(x).values()) for x in given], rtol=1e-12)


def test_polars_tables() -> None:
    table = pl.DataFrame(rows())
    one, two = (PrivatePCA(seed=5, row_norm=1.0, release_every=1) for _ in range(2))
    for model, given in ((one, table), (two, table.to_pandas(use_pyarrow_extension_array=False))):
        assert type(model.transform_many(given[:3])) is type(given)
        model.learn_many(given)
    assert one.release.to_json() == two.release.to_json()  # type: ignore[union-attr]
    scores = one.transform_many(table[["d", "a", "b"]])  # c is missing, and counts as 0
    assert scores.columns == ["pc0", "pc1"]
    assert np.array_equal(scores.to_numpy(), two.transform_many(table.to_pandas().assign(c=0.0)).to_numpy())
    text = table.with_columns(pl.lit("x").alias("a"))
    with pytest.raises(BadRowError, match="does not hold numbers"):
        one.transform_many(text)
    one.learn_many(text)
    assert one.admission.zero_rows_by_reason == {"not a number": len(text)}  # type: ignore[union-attr]


def test_pipelines_and_text_of_numbers(tmp_path: Path) -> None:
    bounds = dict.fromkeys(next(iter(datasets.TrumpApproval()))[0], (0.0, 100.0)) | {"ordinal_date": (736e3, 738e3)}
    model = PrivatePCA(bounds=bounds, release_every=50) | linear_model.LinearRegression(intercept_lr=0.1)
    metric = evaluate.progressive_val_score(datasets.TrumpApproval(), model, metrics.MAE())
    assert metric.get() < 10.0  # percent of approval
    assert model["PrivatePCA"].t == 1_001
    path = tmp_path / "rows.csv"
    pd.DataFrame(rows(60)).assign(name="x").to_csv(path, index=False)
    named = PrivatePCA(seed=1, features=sorted(NAMES), row_norm=1.0, release_every=1)
    text = learn(named, [x for x, _ in stream.iter_csv(str(path))])
    numbers_only = compose.SelectType(float) | PrivatePCA(seed=1, row_norm=1.0, release_every=1)
    for x, _ in stream.iter_csv(str(path), converters=dict.fromkeys(NAMES, float)):
        numbers_only.learn_one(x)
    assert text == numbers_only["PrivatePCA"].release.to_json()


def test_features_come_and_go() -> None:
    some = [
        {name: value for name, value in x.items() if i == 0 or name != NAMES[i % 4]} for i, x in enumerate(rows(50))
    ]
    with_new = [x | ({"new": 1e9} if i % 3 else {}) for i, x in enumerate(some)]
    filled = [{name: x.get(name, math.nan) for name in NAMES} for x in some]
    model = PrivatePCA(seed=1, row_norm=1.0, release_every=1)
    assert learn(model, with_new) == learn(PrivatePCA(seed=1, row_norm=1.0, release_every=1), filled)
    assert model.admission.zero_rows_by_reason == {"missing value": 49}  # type: ignore[union-attr]
    # In scores a missing feature of a range counts as its middle.
    ranges, first = {"a": (0.0, 10.0), "b": (-4.0, 2.0), "c": (5.0, 6.0)}, {"a": 1.0, "b": 1.0, "c": 5.0}
    model = PrivatePCA(seed=1, bounds=ranges, release_every=1)
    learn(model, [first] * 3)
    assert model.transform_one({"a": 3.0, "b": -1.0}) == model.transform_one({"a": 3.0, "c": 5.5, "d": "x"})
    assert model.transform_one({}) == {"pc0": 0.0, "pc1": 0.0}


def test_what_is_no_row_leaves_no_trace() -> None:
    model = PrivatePCA(row_norm=1.0, release_every=1)
    model.learn_one({})
    model.learn_many(pd.DataFrame({"u": []}))
    with pytest.raises(UsageError, match=r"n_components=2 exceeds the 1 features \['z'\]"):
        model.learn_one({"z": 1.0})
    assert model.t == 0
    assert model.transform_one({"b": 2.0, "a": 1.0}) == model.transform_one({}) == {"pc0": 0.0, "pc1": 0.0}
    scores = model.transform_many(pd.DataFrame({"b": [2.0], "a": [1.0]}, index=[9]))
    assert scores.to_dict("index") == {9: {"pc0": 0.0, "pc1": 0.0}}
    for name in ("components", "explained_variance_ratio"):
        with pytest.raises(NoReleaseError, match="no release yet"):
            getattr(model, name)
    model.learn_one({"a": 0.1, "b": 0.2})
    assert list(model.components.columns) == ["a", "b"]


@pytest.mark.parametrize("bad", [{}, {"b": 1.0}, {"a": "x", "b": 1.0}, {"a": None, "b": 1.0, "c": 0.0}])
def test_a_bad_row_counts_for_nothing_the_first_one_too(bad: Any) -> None:
    good = [{"a": 0.1 * i, "b": -0.2} for i in range(6)]
    for at in (0, 3):
        models = [PrivatePCA(features=["a", "b"], seed=1, row_norm=1.0, release_every=1) for _ in range(2)]
        one, two = (
            learn(model, [*good[:at], record, *good[at:]])
            for model, record in zip(models, (bad, {"a": float("nan"), "b": 0.0}), strict=True)
        )
        assert one == two
        assert models[0].t == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, "epsilon=0.0"),
        ({"features": ["a"]}, "n_components=2 exceeds the 1 features"),
        ({"features": ["a", "b", "a"]}, "'a'"),
        ({"features": ["a", "b"], "bounds": {"a": (0, 1)}}, "bounds are missing for 'b'"),
        ({"ledger": "x.db"}, "the path of a ledger and the name"),
    ],
)
def test_bad_parameters(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PrivatePCA(**options, release_every=1)


def test_names_and_bounds_keep_their_order() -> None:
    with pytest.raises(UsageError, match="need features="):
        PrivatePCA(bounds=([0, 0], [1, 2]), release_every=1).learn_one({"a": 1.0, "b": 1.0})
    for options, x, columns in (
        ({"bounds": ([0, 0], [1, 2]), "features": ["b", "a"]}, {"a": 2.0, "b": 0.5}, ["b", "a"]),
        ({"bounds": {7: (0, 1), 10: (0, 2)}}, {10: 1.0, 7: 0.5}, [10, 7]),
    ):
        one, many = (PrivatePCA(n_components=1, seed=1, release_every=1, **options) for _ in range(2))  # type: ignore[arg-type]
        many.learn_many(pd.DataFrame([x]))
        assert learn(one, [x]) == many.release.to_json()  # type: ignore[union-attr]
        assert list(one.components.columns) == columns


def test_aligned_scores_jump_less() -> None:
    jumps = {}
    for align in (True, False):
        model = PrivatePCA(n_components=2, epsilon=1.0, seed=2, align=align, row_norm=1.0, release_every=1)
        bases = []
        for x in rows(200):
            model.learn_one(x)
            axes = [model.transform_one({name: float(name == which) for name in NAMES}) for which in sorted(NAMES)]
            bases.append(np.array([list(axis.values()) for axis in axes]))
            assert np.allclose(bases[-1] @ bases[-1].T, model.release.subspace.projector)  # type: ignore[union-attr]
        jumps[align] = sum(float(np.linalg.norm(b - a)) for a, b in pairwise(bases))
    assert jumps[True] < 0.7 * jumps[False]
