"""Calendars of the transformers of river: rows count in the period in which they are learned, by the clock."""

import copy
import pickle
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

import streampca as sp
from streampca.errors import BadParameterError, UsageError
from streampca.stream import periods

river = pytest.importorskip("streampca.river")
START = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ["b", "a", "c"]
TABLE = pd.DataFrame(np.random.default_rng(8).normal(size=(90, 3)) / 3.0, columns=NAMES)
DAYS = np.sort(np.random.default_rng(9).uniform(0.0, 6.0, 90))
PERSON = sp.Person(column="who")
MODELS = {
    "PrivatePCA": ({"release_every": "1d", "horizon": "7d"},
                   lambda **more: sp.PrivateFPL(release_every="1d", horizon="7d", **more)),
    "PrivateWindowPCA": ({"release_every": "1d", "window": "3d"},
                         lambda **more: sp.SlidingWindowPCA(release_every="1d", window="3d", **more)),
    "PrivateBlockPCA": ({"block": "1d"},
                        lambda **more: sp.Tumbling(sp.GaussianCovariance(**more), release_every="1d")),
}  # fmt: skip


@pytest.fixture
def set_clock(monkeypatch):
    now = [START]
    monkeypatch.setattr(periods, "clock", lambda: round(now[0].timestamp() * 1e6))
    return lambda day: now.__setitem__(0, START + timedelta(days=day))


def made(kind, **more):
    given = {"row_norm": 1.0, "features": NAMES, "start": START, "seed": 2, **MODELS[kind][0], **more}
    return getattr(river, kind)(1, 1.0, **given)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("unit", [None, PERSON], ids=["rows", "people"])
@pytest.mark.parametrize("kind", MODELS)
def test_the_releases_are_those_of_a_stream_with_the_same_closings(kind, unit, center, set_clock):
    one, many, renewed = (made(kind, unit=unit, center=center) for _ in range(3))
    algorithm = MODELS[kind][1](n_components=1, epsilon=1.0, unit=unit, center=center)
    stream = sp.Stream(algorithm, row_norm=1.0, features=NAMES, start=START, seed=2, regret=None)
    table = TABLE if unit is None else TABLE.assign(who=np.arange(90) % 7)
    for model in (one, many, renewed, stream):
        model.tick()
    seen = []
    for day in np.arange(0.0, 6.5, 0.5):  # the third day has no rows, and is closed by the next ones
        set_clock(day)
        rows = table[(day <= DAYS) & (day + 0.5 > DAYS) & (np.floor(DAYS) != 2)]
        for row in rows.to_dict("records"):
            one.learn_one(row)
            stream.push(row)
        many.learn_many(rows[rows.columns[::-1]])
        if day == 4.5:  # seeded copies draw the same noise
            renewed = pickle.loads(pickle.dumps(copy.deepcopy(renewed)))
        renewed.learn_many(rows)
        if day == 6.0:
            for model in (one, many, renewed, stream):
                model.tick()
        if len(rows):
            seen.append(one.t)
            texts = [model.release and model.release.to_json() for model in (one, many, renewed, stream)]
            assert len(set(texts)) == 1
    assert seen == [0, 0, 1, 1, 3, 3, 4, 4, 5, 5]
    assert one.t == stream.t == 6
    assert one.release.to_json() == stream.release.to_json()
    assert one.release.period == (START + timedelta(days=5), START + timedelta(days=6))
    assert one.admission == many.admission == stream.admission
    assert one.guarantee == stream.guarantee
    assert one.guarantee.adjacency == "add-remove"
    assert list(one.components.columns) == NAMES


def test_a_clone_begins_anew_and_ticks_without_rows(set_clock):
    model = made("PrivatePCA")
    set_clock(2.5)
    model.learn_one(dict.fromkeys(NAMES, 0.1))
    fresh = model.clone()
    assert (model.t, fresh.t, fresh.start, fresh.release) == (2, 0, START, None)
    fresh.tick("2026-01-04T00:00Z")
    assert fresh.t == 3
    assert fresh.admission.rows == 0
    assert fresh.transform_one({"a": 1.0})["pc0"] != 0.0


def test_periods_closed_by_hand():
    model = made("PrivatePCA", release_every="manual", horizon=3, start=None)
    stream = sp.Stream(
        sp.PrivateFPL(n_components=1, epsilon=1.0, release_every="manual", horizon=3),
        row_norm=1.0, features=NAMES, seed=2, regret=None,
    )  # fmt: skip
    for rows in (TABLE[:9], TABLE[:0], TABLE[9:]):
        model.learn_many(rows)
        stream.push_many(rows)
        model.close_period()
        stream.close_period()
        assert model.release.to_json() == stream.release.to_json()


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("PrivatePCA", {"features": None}, "features=None: expected names: with a calendar"),
        ("PrivatePCA", {"start": None}, "start=None: expected a time with its time zone"),
        ("PrivatePCA", {"release_every": 10, "horizon": 90}, "start="),
        ("PrivateBlockPCA", {"start": "2026-01-01"}, "start='2026-01-01': expected a time"),
        ("PrivateWindowPCA", {"window": "36h"}, "window='36h': expected a number of periods"),
    ],
)
def test_what_does_not_fit_a_calendar_is_refused_before_a_row(kind, given, message):
    with pytest.raises(BadParameterError, match=message):
        made(kind, **given)


def test_rows_without_a_calendar_have_no_periods():
    model = river.PrivatePCA(1, row_norm=1.0)
    for call in (model.tick, model.close_period):
        with pytest.raises(UsageError, match="no periods to close"):
            call()
    with pytest.raises(UsageError, match="closes by the clock"):
        made("PrivatePCA").close_period()
