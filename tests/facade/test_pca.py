"""`sp.pca`: one release of one table, from every kind of data."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

import streampca as sp
from streampca.errors import BudgetExhaustedError, SourceError, UsageError

BOUNDS = {"age": (0.0, 120.0), "height": (100.0, 220.0), "weight": (20.0, 180.0)}
NAMES = list(BOUNDS)


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    both = rng.normal(size=(4000, 2)) @ [[10.0, 8.0, 12.0], [0.0, 3.0, 9.0]] + [50.0, 170.0, 70.0]
    return pd.DataFrame(both + rng.normal(size=both.shape), columns=NAMES)


def forms(frame, folder):
    csv, parquet = folder / "rows.csv", folder / "rows.parquet"
    frame.to_csv(csv, index=False)
    pq.write_table(pa.Table.from_pandas(frame), parquet)
    return {
        "frame": frame, "polars": pl.from_pandas(frame), "arrow": pa.Table.from_pandas(frame), "csv": csv,
        "parquet": str(parquet), "dicts": frame.to_dict("records"),
    }  # fmt: skip


def test_every_kind_of_table_is_released_alike(frame, tmp_path):
    releases = {
        kind: sp.pca(data, 2, 1.0, bounds=BOUNDS, seed=0) for kind, data in forms(frame, tmp_path).items()
    }  # fmt: skip
    for kind, release in releases.items():
        assert np.array_equal(release.gram, releases["frame"].gram), kind
        assert release.features == tuple(NAMES)
    # Arrays have no names.
    lows, highs = zip(*BOUNDS.values(), strict=True)
    for data in (frame.to_numpy(), sparse.csr_array(frame.to_numpy()), frame.to_numpy().tolist()):
        release = sp.pca(data, 2, 1.0, bounds=(lows, highs), seed=0)
        assert release.features == ("x0", "x1", "x2")
        assert np.array_equal(release.gram, sp.pca(data, 2, 1.0, bounds=list(BOUNDS.values()), seed=0).gram)


def test_components_variances_and_mean_are_in_the_units_of_the_rows(frame):
    release = sp.pca(frame, 2, 1000.0, delta=1e-4, bounds=BOUNDS, seed=1)
    values = frame.to_numpy()
    half = np.array([0.5 * (high - low) for low, high in BOUNDS.values()])
    exact, vectors = np.linalg.eigh(np.cov(values / (half * np.sqrt(3.0)), rowvar=False, ddof=0))
    assert release.components.shape == (2, 3)
    assert np.abs(release.components @ vectors[:, :-3:-1]).diagonal() == pytest.approx(1.0, abs=1e-3)
    assert release.explained_variance == pytest.approx(exact[:-3:-1], rel=1e-2)
    assert release.mean == pytest.approx(values.mean(axis=0), rel=1e-3)
    assert np.array_equal(release.scale, half)
    table = release.to_frame()
    assert list(table.index) == NAMES
    assert list(table) == [
        "mean", "middle", "scale", *(f"{name}_{i}" for i in (1, 2) for name in ("loading", "error", "change"))
    ]  # fmt: skip
    # One standard deviation along a component moves a feature by its share of the feature's own deviation.
    moved = np.hypot(table["change_1"], table["change_2"])
    assert moved.to_numpy() == pytest.approx(values.std(axis=0), rel=0.1)


def test_a_share_chooses_the_number_of_components_after_the_release(frame):
    every = sp.pca(frame, 1, 10.0, bounds=BOUNDS, seed=2)
    shares = np.cumsum(every.replaced(n_components=3).explained_variance_ratio)
    for share in (0.05, 0.9, 0.999):
        release = sp.pca(frame, share, 10.0, bounds=BOUNDS, seed=2)
        assert release.n_components == 1 + int((shares < share).sum())
        assert np.array_equal(release.gram, every.gram)


def test_a_cell_that_is_no_number_makes_its_row_absent(frame):
    torn = frame.astype(object)
    torn.loc[::10, "height"] = "unknown"
    kept = frame[np.arange(len(frame)) % 10 > 0]
    release, whole = (sp.pca(data, 2, 50.0, bounds=BOUNDS, seed=3) for data in (torn, kept))
    assert release.t == len(frame)
    assert release.mean == pytest.approx(whole.mean, rel=1e-2)
    assert release.explained_variance == pytest.approx(whole.explained_variance, rel=0.05)


@pytest.mark.parametrize(
    ("data", "options", "text"),
    [
        ("frame", {}, "Give the range of each column"),
        ("frame", {"row_norm": 300.0}, "the table has no types: name its numeric columns with `columns`"),
        ("arrow", {"bounds": (0, 300)}, "does not hold numbers"),
        ("iterator", {"row_norm": 1.0}, "expected a table, or the path of a regular file"),
        ("frame", {"bounds": BOUNDS, "n_components": 1.5}, "a share of the variance in"),
        ("frame", {"bounds": BOUNDS, "n_components": 4}, "n_components=4 exceeds n_features=3"),
        ("short", {"bounds": "private", "columns": NAMES}, "warmup=1: expected fewer rows than horizon=1."),
    ],
)
def test_refusals_name_what_to_do_and_spend_nothing(frame, tmp_path, data, options, text):
    tables = forms(frame, tmp_path)
    tables["arrow"] = tables["arrow"].append_column("name", [["x"] * len(frame)])
    tables |= {"iterator": iter([[1.0, 2.0]]), "short": frame[:1]}
    with sp.Ledger(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("clinic", sp.Budget(1.0, 1e-6))
        account = ledger.account("clinic")
        before = account.remaining()
        with pytest.raises((UsageError, SourceError), match="(?s)" + text.replace("(", r"\(").replace(".", r"\.")):
            sp.pca(tables[data], options.pop("n_components", 2), 1.0, account=account, **options)
        assert account.remaining() == before


def test_an_account_pays_once(frame, tmp_path):
    with sp.Ledger(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("clinic", sp.Budget(1.0, 1e-6))
        sp.pca(frame, 2, 1.0, bounds=BOUNDS, account=ledger.account("clinic"))
        with pytest.raises(BudgetExhaustedError):
            sp.pca(frame, 2, 1.0, bounds=BOUNDS, account=ledger.account("clinic"))


def test_an_empty_table_is_refused(tmp_path):
    path = tmp_path / "none.csv"
    path.write_text("age,height,weight\n")
    with pytest.raises(SourceError, match="no rows"):
        sp.pca(path, 2, 1.0, bounds=BOUNDS)


def test_a_saved_release_is_read_again(frame, tmp_path):
    release = sp.pca(frame, 2, 1.0, bounds=BOUNDS)
    release.save(tmp_path / "release.jsonl")
    (again,) = sp.read_releases(tmp_path / "release.jsonl")
    assert np.array_equal(again.gram, release.gram)
    assert again.to_frame().equals(release.to_frame())
    assert [path.name for path in tmp_path.iterdir()] == ["release.jsonl"]
