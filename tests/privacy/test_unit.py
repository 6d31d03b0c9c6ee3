"""Names of people, and the unit of privacy."""

import math
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import streampca as sp
from streampca.errors import BadParameterError, UsageError
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.unit import name_of, names_of

ONE = uuid.UUID("12345678-1234-5678-1234-567812345678")


def test_whole_numbers_of_any_type_are_one_person():
    pa = pytest.importorskip("pyarrow")
    with_nan = pd.Series([12, None])  # a missing value makes the column float
    same = [
        12, 12.0, "12", " 012 ", "0012\n", np.int64(12), np.uint8(12), np.float64(12), np.float32(12),
        np.float16(12),
        pa.scalar(12), pa.scalar("12"), pa.scalar(12.0), with_nan[0], b"12", bytearray(b" 12"), Decimal(12),
    ]  # fmt: skip
    assert {name_of(value) for value in same} == {b"12"}
    assert {name_of(value) for value in (0, "0", "000", -0.0, False)} == {b"0"}
    assert name_of(-5) == name_of("-5") == name_of(-5.0)


@pytest.mark.parametrize(
    "value",
    [None, float("nan"), "", "  ", 2.0**53, np.float32(2**24), np.float16(2**11), 1.5, float("inf"),
     np.datetime64("NaT", "s"), pd.NaT, np.datetime64(10**12, "s"), timedelta(1), time(12),
     Decimal("NaN"), Decimal("1.5"), object(), [1], {"a": 1}, b"", (None, "a"), ("a", "")],
)  # fmt: skip
def test_other_values_name_nobody(value):
    assert name_of(value) is None


def test_dates_and_times_are_their_iso_texts():
    pa = pytest.importorskip("pyarrow")
    day, noon = date(1990, 2, 3), datetime(1990, 2, 3, 12, 30)
    same = [
        day, datetime(1990, 2, 3), "1990-02-03", np.datetime64("1990-02-03"), np.datetime64("1990-02-03", "ns"),
        pd.Timestamp(day), pd.Series([day, None], dtype="datetime64[ns]")[0], pa.scalar(day),
        pa.scalar(datetime(1990, 2, 3)),
    ]  # fmt: skip
    assert {name_of(value) for value in same} == {b"1990-02-03"}
    assert {name_of(value) for value in (noon, pd.Timestamp(noon), np.datetime64(noon), "1990-02-03T12:30:00")} == {
        b"1990-02-03T12:30:00"
    }
    # One instant is one name in all zones, and another one than the same text without a zone.
    aware = datetime(1990, 2, 3, 13, 30, tzinfo=timezone(timedelta(hours=1)))
    assert name_of(aware) == name_of(pd.Timestamp(aware)) == b"1990-02-03T12:30:00+00:00"
    assert name_of(datetime(1990, 2, 3, tzinfo=UTC)) != name_of(day)
    # Nanoseconds would split a name between doors that keep them and doors that do not.
    assert name_of(pd.Timestamp("1990-02-03T00:00:00.000000001")) == name_of(day)


def test_texts_are_compared_in_one_normal_form():
    assert name_of("e\u0301") == name_of("\u00e9") == "\u00e9".encode()
    assert name_of(ONE) == name_of(str(ONE))
    assert len({name_of(text) for text in ("12.0", "12", "+12", "\u0661\u0662", "a", "A")}) == 6


def test_parts_of_a_name_do_not_run_together():
    assert name_of(("a", "bc")) != name_of(("ab", "c"))
    assert names_of([["a", "b"], [1, None]]) == [name_of(("a", 1)), None]
    assert name_of((1, "x")) == name_of(("01", " x"))


@pytest.mark.parametrize(
    ("given", "name"),
    [({"budget": 0.0}, "budget"), ({"budget": 2e3}, "budget"), ({"budget": np.nan}, "budget"),
     ({"max_rows": 0}, "max_rows"),
     ({"name": " "}, "name"), ({"column": ""}, "column"), ({"column": ("a", "a")}, "column"),
     ({"column": 3}, "column"), ({"period": "1month"}, "period"), ({"period": 1}, "period")],
)  # fmt: skip
def test_parameters_outside_their_domain_are_refused(given, name):
    with pytest.raises((BadParameterError, TypeError), match=name):
        sp.Person(**given)


def test_the_guarantee_is_for_the_unit():
    person = sp.PrivateFPL(n_components=1, epsilon=1.0, unit=sp.Person(column="id", name="device"))
    assert person.guarantee.unit == "one device"
    assert "1 full row, at most 64 rows" in person.guarantee.contribution
    assert sp.PrivateFPL(n_components=1, epsilon=1.0, unit="id").unit == sp.Person(column="id")
    at_once = sp.GaussianCovariance(n_components=1, epsilon=1.0, unit="id").guarantee
    assert "one weight" in at_once.contribution
    with pytest.raises(BadParameterError, match="unit"):
        sp.PrivateFPL(n_components=1, epsilon=1.0, unit=3)


def test_the_guarantee_of_a_person_in_a_period_is_that_of_one_period_with_the_price_of_several():
    given = {"n_components": 1, "epsilon": 1.0, "horizon": "8w", "release_every": "1d"}
    plain, weekly = (
        sp.PrivateFPL(**given, unit=sp.Person(column="id", period=period)).guarantee for period in (None, "1w")
    )
    assert weekly.unit == "one person in one week"
    assert sp.Person(period="36h", name="device").text == "one device in 36 hours"
    assert (weekly.mu, weekly.rho, weekly.period) == (plain.mu, plain.rho, "1w")
    assert "anew in every period of one week" in weekly.contribution
    assert weekly.over_periods == {p: (p * plain.mu, pytest.approx(p**2 * plain.rho)) for p in (1, 7, 30)}
    assert plain.over_periods == {}
    assert "over_periods" not in plain.in_figures()
    assert weekly.in_figures()["over_periods"]["7"]["mu"] == 7 * plain.mu
    assert Guarantee.from_dict(weekly.to_dict()) == weekly
    assert weekly.compose(weekly).over_periods[7][0] == pytest.approx(7 * math.sqrt(2.0) * plain.mu)
    with pytest.raises(UsageError, match="cannot compose"):
        weekly.compose(plain)
    with pytest.raises(BadParameterError, match="period"):
        Guarantee.from_dict({**weekly.to_dict(), "period": "soon"})


@pytest.mark.parametrize(
    ("make", "both"),
    [
        (lambda u: sp.PrivateOja(n_components=1, epsilon=1.0, clip=0.5, unit=u), ("clip", "unit")),
        (lambda u: sp.GaussianCovariance(n_components=1, epsilon=1.0, discrete_noise=True, unit=u),
         ("discrete", "unit")),
        (lambda u: sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, unit=u, adjacency="replace"),
                             bounds="private"), ("bounds", "unit", "adjacency")),
        (lambda u: sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, unit=u, center=False), row_norm=1.0,
                             features=2, on_missing="cell"), ("missing_rates", "unit", "center")),
    ],
)  # fmt: skip
def test_refused_combinations_name_both_settings(make, both):
    with pytest.raises(UsageError) as refused:
        make(sp.Person())
    assert all(name in str(refused.value) for name in both)
