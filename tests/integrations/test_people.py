"""People as the unit of privacy of the estimators of scikit-learn and the transformers of river."""

import numpy as np
import pandas as pd
import pytest

import streampca as sp
from streampca.errors import BadParameterError, UsageError

river = pytest.importorskip("streampca.river")
sklearn = pytest.importorskip("streampca.sklearn")
ROWS = np.random.default_rng(3).normal(size=(600, 3)) * [0.5, 0.2, 0.1]
PEOPLE = [f"p{i % 40}" for i in range(600)]


def gram(model):
    return model.release_.gram


@pytest.mark.parametrize("center", [True, False])
def test_fit_gives_all_rows_of_a_person_one_weight(center):
    model = sklearn.PrivatePCA(1, row_norm=1.0, unit=sp.Person(), center=center, random_state=1)
    model.fit(ROWS, person=PEOPLE)
    mechanism = sp.GaussianCovariance(n_components=1, epsilon=1.0, center=center, unit=sp.Person())
    whole = mechanism.release(ROWS, row_norm=1.0, seed=1, person=PEOPLE)
    assert model.guarantee_.unit == "one person"
    assert model.n_samples_seen_ == 600
    np.testing.assert_allclose(gram(model), whole.gram, atol=1e-9)
    # 15 rows of a person count as one full row, so that the release differs from that of rows.
    rows = sklearn.PrivatePCA(1, row_norm=1.0, center=center, random_state=1).fit(ROWS)
    assert np.abs(gram(rows) - gram(model)).max() > 1.0
    np.testing.assert_array_equal(
        gram(model), gram(sklearn.PrivatePCA(1, row_norm=1.0, unit=sp.Person(), center=center, random_state=1)
                          .fit(pd.DataFrame(ROWS), person=np.array(PEOPLE))),
    )  # fmt: skip


@pytest.mark.parametrize("center", [True, False])
def test_partial_fit_keeps_one_budget_over_the_batches(center):
    model = sklearn.PrivatePCA(1, row_norm=1.0, unit=sp.Person(), center=center, random_state=1)
    stream = sp.Stream(
        sp.PrivateFPL(n_components=1, epsilon=1.0, center=center, release_every="manual", unit=sp.Person()),
        row_norm=1.0, seed=1, features=3, regret=None,
    )  # fmt: skip
    for start in (0, 100, 350):
        part, names = ROWS[start : start + 200], PEOPLE[start : start + 200]
        model.partial_fit(part, person=names)
        stream.push_many(part, names)
        stream.close_period()
        np.testing.assert_array_equal(gram(model), stream.release.gram)
        assert np.isfinite(model.explained_variance_).all()
    assert model.n_samples_seen_ == 600
    assert model.admission.people == 40
    assert model.admission == stream.admission


def test_names_and_unit_go_together():
    model = sklearn.PrivatePCA(1, row_norm=1.0)
    with pytest.raises(UsageError, match="person: expected both"):
        model.fit(ROWS, person=PEOPLE)
    with pytest.raises(UsageError, match="unit: expected both"):
        model.set_params(unit=sp.Person()).fit(ROWS)
    with pytest.raises(UsageError, match="599 names for 600 rows"):
        model.fit(ROWS, person=PEOPLE[1:])
    with pytest.raises(BadParameterError, match=r"fit\(X, person=X\[column\]\)"):
        model.set_params(unit=sp.Person(column="who")).partial_fit(ROWS, person=PEOPLE)


@pytest.mark.parametrize("kind", ["PrivatePCA", "PrivateWindowPCA", "PrivateBlockPCA", "PrivateOjaPCA"])
def test_a_key_of_each_mapping_names_its_person(kind):
    def model(**more):
        given = {"horizon": 700} if kind in ("PrivatePCA", "PrivateOjaPCA") else {}
        given |= {"block": 100} if kind == "PrivateBlockPCA" else {}
        given |= {"window": 200} if kind == "PrivateWindowPCA" else {}
        unit = sp.Person(column="who")
        return getattr(river, kind)(1, 1.0, row_norm=1.0, unit=unit, seed=1, **given | more)

    table = pd.DataFrame(ROWS, columns=["a", "b", "c"]).assign(who=PEOPLE)
    one, many = model(), model()
    for row in table.to_dict("records"):
        one.learn_one(row)
    many.learn_many(table)
    assert list(one.components.columns) == ["a", "b", "c"]
    assert one.release.to_json() == many.release.to_json()
    assert one.admission == many.admission
    assert one.guarantee.unit == "one person"
    if kind != "PrivateBlockPCA":  # whose blocks weight rows by themselves
        assert one.admission.people == 40
    # A row of nobody is a bad row.
    one.learn_one({"a": 0.1, "b": 0.1, "c": 0.1})
    assert one.admission.zero_rows_by_reason == {"no person": 1}


def test_a_unit_of_another_type_is_refused_by_scikit_learn():
    for unit, message in (("who", "unit.column='who': expected None"), (5, "unit=5: expected a Person")):
        with pytest.raises(BadParameterError, match=message):
            sklearn.PrivatePCA(1, row_norm=1.0, unit=unit).fit(np.eye(3), person=[1, 2, 3])


def test_the_person_is_no_feature_of_river():
    with pytest.raises(BadParameterError, match="a key that is no feature"):
        river.PrivatePCA(1, row_norm=1.0, unit=sp.Person())
    with pytest.raises(BadParameterError, match="a key that is no feature"):
        river.PrivatePCA(1, row_norm=1.0, unit=sp.Person(column="a"), features=["a", "b"])
