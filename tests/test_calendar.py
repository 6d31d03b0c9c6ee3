"""Calendars: the grid, times, and what two data sets that differ in one row have in common."""

import csv
import json
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest

import streampca as sp
from streampca.auditing.needs import absent
from streampca.auditing.runs import Case, feed_calendar, pairs
from streampca.calendar import Calendar, instant, length_of
from streampca.cli import main
from streampca.errors import BadParameterError

SECOND = 10**6
START = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"), [("1s", 1), ("15min", 900), ("6h", 21_600), ("1d", 86_400), ("2w", 1_209_600)]
)
def test_durations(text, seconds):
    assert length_of("release_every", text) == seconds * SECOND


@pytest.mark.parametrize(
    "text", ["", "d", "0d", "01d", "1.5d", "1 d", "-1d", "1m", "1day", "1D", 3, None, "9999999999d"]
)
def test_other_texts_are_no_durations(text):
    with pytest.raises(BadParameterError, match="release_every"):
        length_of("release_every", text)


@pytest.mark.parametrize(
    ("start", "duration", "words"),
    [
        ("2026-03-01T00:00+00:00", "1d", ""),
        ("2026-03-01T00:00+01:00", "1d", " from 23:00 UTC"),
        ("2026-03-01T06:00+01:00", "6h", " from 05:00 UTC"),
        ("2026-03-01T12:00:00.5+00:00", "1d", " from 12:00:00.500000 UTC"),
        ("2026-03-02T00:00+00:00", "1w", " from 1970-01-05 00:00 UTC"),
        ("1969-12-31T23:59+00:00", "1h", " from 00:59 UTC"),
    ],
)
def test_a_grid_says_where_its_periods_begin(start, duration, words):
    assert Calendar.of("1min", start).phase(duration) == words


def test_one_instant_has_many_spellings_and_others_are_none():
    at = 1_772_323_200 * SECOND
    zone = timezone(timedelta(hours=2))
    same = [
        START, START.astimezone(zone), "2026-03-01T00:00:00Z", " 2026-03-01T02:00+02:00 ", b"2026-03-01T00:00+00:00",
        pd.Timestamp(START), np.float64(1_772_323_200.0), 1_772_323_200, np.int64(1_772_323_200),
    ]  # fmt: skip
    naive = [
        "2026-03-01", "2026-03-01 00:00:00", np.datetime64("2026-03-01"), np.datetime64("2026-03-01T00:00:00", "ns"),
        datetime(2026, 3, 1), pd.Timestamp("2026-03-01"),
    ]  # fmt: skip
    assert {instant(one) for one in same} == {at}
    assert {instant(one, naive=True) for one in same + naive} == {at}
    assert {instant(one) for one in naive} == {None}
    none = [
        None,
        "",
        "soon",
        "2026-13-01",
        float("nan"),
        float("inf"),
        True,
        pd.NaT,
        np.datetime64("NaT", "s"),
        [],
        2**40,
    ]
    assert {instant(one, naive=True) for one in none} == {None}
    assert instant("2026-03-01T00:00:00.000001Z") == at + 1
    assert instant(1_772_323_199.5) == at - SECOND // 2


def test_the_grid_has_fixed_lengths_in_utc():
    berlin = Calendar.of("1d", "2026-03-28T00:00+01:00")  # a day before summer time
    assert berlin is not None
    hours = [berlin.number(berlin.start + round(hour * 3600) * SECOND) for hour in (-0.001, 0, 23.999, 24, 48)]
    assert hours == [-1, 0, 0, 1, 2]
    assert berlin.bounds(2) == (datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 3, 29, 23, tzinfo=UTC))
    assert Calendar.of(**{"every": berlin.terms()["release_every"], "start": berlin.terms()["start"]}) == berlin


# -- neighbors -----------------------------------------------------------------------------------


def case(**more):
    given = {"n_components": 2, "epsilon": 8.0, "delta": 1e-2, "horizon": "6d", "release_every": "1d"} | more
    return Case(
        name="neighbors", make=lambda: sp.PrivateFPL(**given), feed=feed_calendar, changes=absent, rows=12, d=5,
        feeds=("push", "many", "timed"), positions=(0, 1, 2, 5, 6, 10, 11),
    )  # fmt: skip


@pytest.mark.ci
@pytest.mark.parametrize("center", [True, False])
def test_the_absence_of_a_row_shifts_nothing(center):
    # Under the noise and the releases of its neighbor, the sums differ by the row, from its own period on.
    found = list(pairs(case(center=center), case(center=center).make(), 3, every=True))
    assert len(found) > 100
    for pair in found:
        notes = [run.notes()["gram"] for run in (pair.first, pair.second)]
        assert [len(one) for one in notes] == [6, 6], pair.text
        own = (int(pair.text.split()[1]) - 1) // 2
        for t, (one, other) in enumerate(zip(*notes, strict=True)):
            same = one.exact.packed().tobytes() == other.exact.packed().tobytes()
            assert same == (t < own or "bad row" in pair.text), pair.text
        assert pair.first.outputs == pair.second.outputs, pair.text


def test_the_count_has_noise_of_eight_standard_deviations():
    subject, counts = case(horizon="1d").make(), []
    for seed in range(400):
        stream = sp.Stream(subject, row_norm=1.0, features=5, seed=seed, start=datetime(3000, 1, 1, tzinfo=UTC))
        stream.push_many(np.full((40, 5), 0.1))
        (release,) = stream.tick(datetime(3000, 1, 2, tzinfo=UTC)).releases
        counts.append(release.details["noisy_count"])
    sd = 8.0 * subject.std(1)
    # 400 normals: the mean is off by more than 5 of its standard deviations with probability 6e-7, the sd by more than
    # a fifth with 2e-7. A count without noise, or with noise of sigma, fails both.
    assert abs(np.mean(counts) - 40.0) < 5.0 * sd / 20.0
    assert np.std(counts) / sd == pytest.approx(1.0, abs=0.2)


def release_file(folder, rows):
    """The lines of the release file of a run of the command line."""
    folder.mkdir()
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["at", "a", "b", "c"])
        writer.writerows(rows)
    out = folder / "out.jsonl"
    words = ["-k", "1", "--epsilon", "1", "--row-norm", "1", "--columns", "a,b,c", "--release-every", "6h", "--start"]
    words += [
        START.isoformat(),
        "--read",
        f"end={(START + timedelta(days=3)).isoformat()}",
        "--read",
        "time=at",
        "--no-live",
    ]
    assert main(["run", str(folder / "rows.csv"), *words, "--out", str(out)]) == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.mark.parametrize("center", ["--center", "--no-center"])
def test_release_files_of_neighbors_have_equal_public_parts(center, tmp_path, capsys):
    rng = np.random.default_rng(1)
    days = np.sort(np.concatenate([rng.uniform(0.0, 1.0, 50), rng.uniform(2.0, 2.9, 50)]))  # a day has no rows
    rows = [[(START + timedelta(days=day)).isoformat(), *rng.normal(size=3) / 4.0] for day in days]
    late, unreadable = (START + timedelta(days=5)).isoformat(), "n/a"
    others = {
        "removed": rows[:30] + rows[31:], "the first": rows[1:], "the last": rows[:-1],
        "bad": [*rows[:9], ["x"] * 4, *rows[9:]],
        "late": [*rows, [late, 1, 2, 3]], "without a time": [*rows[:9], [unreadable, 1, 2, 3], *rows[9:]],
        "almost none": rows[:1],
    }  # fmt: skip
    header, *expected = release_file(tmp_path / "all", rows)
    assert len(expected) == 12
    assert [line["period"][0] for line in expected] == [
        (START + timedelta(hours=6 * i)).isoformat() for i in range(12)
    ]  # fmt: skip
    for name, some in others.items():
        head, *lines = release_file(tmp_path / name, some)
        # Runs have random names, of which their terms have a digest.
        assert {**head["run"], "name": ""} == {**header["run"], "name": ""}
        assert {**head, "run": None, "terms": ""} == {**header, "run": None, "terms": ""}, name
        for line, other in zip(lines, expected, strict=True):
            assert line.keys() == other.keys()
            assert line["details"].keys() == other["details"].keys()
            # The noise along the mean depends on the released mean; its isotropic part is public.
            assert line["details"]["joint_noise_std"] == other["details"]["joint_noise_std"]
            assert [line[key] for key in ("t", "n_components", "period")] == [
                other[key] for key in ("t", "n_components", "period")
            ]  # fmt: skip
    assert "rows" not in capsys.readouterr().out


def test_without_centering_no_number_of_rows_is_released():
    run = sp.Stream(case(center=False).make(), row_norm=1.0, features=5, start="3000-01-01T00:00Z", seed=0)
    run.push_many(np.full((30, 5), 0.3))
    (release,) = run.tick("3000-01-02T00:00Z").releases
    assert release.count is None
    assert "30" not in json.dumps(release.details)
    assert release.period == (datetime(3000, 1, 1, tzinfo=UTC), datetime(3000, 1, 2, tzinfo=UTC))
    assert np.isfinite(release.explained_variance).all()
    assert release.to_frame() is not None


def test_the_guarantee_names_its_neighbors_and_its_assumption():
    guarantee = case().make().guarantee
    assert guarantee.adjacency == "add-remove"
    assert guarantee.mu == pytest.approx(sp.Budget(8.0, 1e-2).mu)
    assert "times at which other rows arrive do not depend on the protected ones" in guarantee.caveat
    assert not any("number of rows" in one for one in guarantee.unprotected)
    again = sp.Guarantee.from_dict(guarantee.to_dict())
    assert again == guarantee
