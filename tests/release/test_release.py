import copy
import json
import pickle

import numpy as np
import pandas as pd
import pytest
from dense_forms import gram_release

from streampca import Guarantee, Release, Terms
from streampca.errors import BadRowError, NoReleaseError, UsageError

PROMISE = Guarantee(1.0, 1e-6, "zero-out", "s", "t", "c", mu=0.2367)


def a_release(**changes: object) -> Release:
    gram = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, -0.5], [0.0, -0.5, 1.0]])
    fields = {"t": 7, "n_components": 2, "guarantee": PROMISE, "noise_std": 0.25, "details": {"epoch": 1}}
    return gram_release(gram, **(fields | changes))  # type: ignore[arg-type]


def test_subspace_and_eigenvalues_are_those_of_the_gram_matrix() -> None:
    release = a_release()
    values, vectors = np.linalg.eigh(release.gram)
    assert release.eigenvalues == pytest.approx(values[::-1][:2])
    np.testing.assert_allclose(release.subspace.projector, vectors[:, 1:] @ vectors[:, 1:].T, atol=1e-12)
    assert release.subspace.basis.shape == (3, 2)
    with pytest.raises(ValueError, match="read-only"):
        release.subspace.basis[0, 0] = 5.0


def test_everything_is_in_units_of_the_row_norm() -> None:
    one, two = a_release(), a_release(row_norm=2.0, features=["a", "b", "c"])
    np.testing.assert_allclose(two.gram, 4 * one.gram)
    np.testing.assert_allclose(two.eigenvalues, 4 * one.eigenvalues)  # type: ignore[operator]
    assert two.noise_std == 1.0
    np.testing.assert_array_equal(two.subspace.basis, one.subspace.basis)


def test_releases_of_a_basis_alone() -> None:
    release = Release(t=1, n_components=1, guarantee=PROMISE, basis=np.array([[0.0], [1.0]]))
    assert release.eigenvalues is None
    assert release.n_features == 2
    assert Release.from_json(release.to_json()).noise_std is None
    bare = Release.from_json(a_release().to_json(gram=False))
    assert bare.packed is None
    with pytest.raises(NoReleaseError, match="subspace only"):
        _ = bare.gram
    with pytest.raises(UsageError, match="packed_gram, basis"):
        Release(t=1, n_components=1, guarantee=PROMISE)


def test_json_keeps_every_float_and_has_no_words_for_what_is_not_finite() -> None:
    odd = np.array([0.1, -0.0, 5e-324, 1e16, 1e22, 2.0**60 + 2.0**8, -1.7976931348623157e308, 1 / 3, 1e-7, 2.5])
    release = Release(
        t=1, n_components=1, guarantee=PROMISE, packed_gram=odd, basis=np.eye(4)[:, :1], details={"é": [1, None, 0.1]},
        features=["a", 'b"', "é", "\u2028"],
    )  # fmt: skip
    text = release.to_json()
    assert "\n" not in text
    assert text.isascii()
    read = json.loads(text)
    assert np.array(read["gram"]).tobytes() == odd.tobytes()
    good = {"packed_gram": odd, "basis": np.eye(4)[:, :1]}
    for changes in (
        {"packed_gram": np.append(odd[:9], np.nan)},
        {"eigenvalues": np.array([np.inf])},
        {"noise_std": np.nan},
        {"details": {"sum": -np.inf}},
    ):
        with pytest.raises(ValueError, match=r"finite|JSON compliant"):
            Release(t=1, n_components=1, guarantee=PROMISE, **(good | changes)).to_json()


def test_a_release_cannot_be_changed() -> None:
    release = a_release()
    with pytest.raises(AttributeError, match="is immutable"):
        release.t = 3
    with pytest.raises(AttributeError, match="is immutable"):
        release.guarantee = Guarantee.none("why")
    for array in (release.gram, release.packed, release.subspace.basis, release.eigenvalues):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0.0
    release.details["epoch"] = 5
    assert release.details == {"epoch": 1}
    other = release.replaced(t=8)
    assert (other.t, other.guarantee, other.details) == (8, PROMISE, {"epoch": 1})
    again = pickle.loads(pickle.dumps(release))
    assert again.to_json() == copy.deepcopy(release).to_json() == release.to_json()


def test_scores_of_raw_rows() -> None:
    rows = np.random.default_rng(0).uniform(0.0, 10.0, size=(50, 3))
    plain = a_release(features=["a", "b", "c"])
    np.testing.assert_allclose(plain.transform(rows), rows @ plain.subspace.basis)
    table = pd.DataFrame(rows, columns=["a", "b", "c"])[["c", "a", "b"]]
    np.testing.assert_allclose(plain.transform(table), rows @ plain.subspace.basis)
    middle, scale = np.full(3, 5.0), np.full(3, 0.1)
    terms = Terms(PROMISE, features=("a", "b", "c"), middle=middle, scale=scale)
    centered = a_release(terms=terms, details={"mean": [0.1, 0.0, -0.1]})
    expected = ((rows - middle) * scale - [0.1, 0.0, -0.1]) @ centered.subspace.basis
    np.testing.assert_allclose(centered.transform(rows), expected)
    for bad in (rows[:, :2], rows[0], [["x", 1, 2]]):
        with pytest.raises(BadRowError):
            plain.transform(bad)
    with pytest.raises(BadRowError, match="lacks feature 'b'"):
        plain.transform(table[["a", "c"]])
