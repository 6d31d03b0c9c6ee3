"""docs/explanation/combinations.md: what is listed works, and what is not is refused."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streampca as sp
from streampca.errors import BadParameterError, UsageError

PAGE = (Path(__file__).parents[1] / "docs" / "explanation" / "combinations.md").read_text()
BUDGET: dict[str, Any] = {"n_components": 1, "epsilon": 1.0, "delta": 1e-6}
VALUES = {
    "solver": ("exact", "tracking", "smoothed"), "center": ("yes", "no"), "publish_regret": ("yes", "no"),
    "noise": ("blt", "tree", "discrete"), "horizon": ("known", "endless"),
    "adjacency": ("zero-out", "replace"), "unit": ("person", "row"),
}  # fmt: skip
START = "2026-01-01T00:00+00:00"
ROWS = np.array([[0.5, 0.1], [0.4, -0.2], [0.6, 0.0]])


def table(*first: str) -> list[dict[str, str]]:
    lines = PAGE[PAGE.index(f"| {' | '.join(first)} |") :].split("\n\n")[0].strip().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def listed() -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for row in table("solver"):
        assert list(row) == list(VALUES)
        found.update(product(*(VALUES[name] if cell == "any" else cell.split(", ") for name, cell in row.items())))
    return found


def run(*values: str) -> Any:
    solver, center, rewards, noise, horizon, adjacency, unit = values
    algorithm = sp.PrivateFPL(
        release_every=1, **BUDGET, solver=solver, publish_regret=rewards == "yes",  # type: ignore[arg-type]
        noise=sp.Tree(discrete=True) if noise == "discrete" else noise,  # type: ignore[arg-type]
        horizon=len(ROWS) if horizon == "known" else None, adjacency=adjacency,  # type: ignore[arg-type]
        unit=sp.Person() if unit == "person" else None, center=center == "yes",
    )  # fmt: skip
    stream: Any = sp.Stream(algorithm, row_norm=1.0, seed=0)
    stream.push_many(ROWS, **({"person": ["a", "b", "a"]} if unit == "person" else {}))
    record = stream.regret.now()
    bounded = (solver, center, noise) == ("exact", "no", "blt")
    assert (record.bound is not None) == bounded
    assert stream.guarantee.adjacency == adjacency
    return stream.release


def test_what_is_listed_works_and_nothing_else() -> None:
    works, every = listed(), set(product(*VALUES.values()))
    assert works < every
    assert len(works) >= 0.5 * len(every)  # what the constructor refuses belongs into a class of its own
    for combination in every:
        if combination in works:
            release = run(*combination)
            assert release.is_centered == (combination[1] == "yes"), combination
            assert ("rewards" in release.details) == (combination[2] == "yes")
        else:
            with pytest.raises(UsageError):
                run(*combination)


def made(name: str, unit: Any = None, every: Any = None) -> Any:
    kind, *more = name.split()
    own = {} if unit is None else {"unit": unit}
    if kind == "Tumbling":
        pure = "LaplaceCovariance" in more[0]
        given = {name: value for name, value in BUDGET.items() if not pure or name != "delta"}
        room = sp.papers if more[0] in sp.papers.__all__ else sp
        return sp.Tumbling(getattr(room, more[0])(**given, **own), release_every=every or 3)
    given = dict(BUDGET)
    if kind == "Oja":
        given = {"n_components": 1}
    elif kind == "PrivateOja":
        given |= {"horizon": 6, "batch_size": 3}
    elif kind == "DPPCA":
        given |= {"horizon": 10**6}
    elif kind in ("PrivateFPL", "PerturbedLeader", "PrivateSketch"):
        given |= {"release_every": 1}
    elif kind == "SlidingWindowPCA":
        given |= {"window": 3, "method": more[0]}
    given |= own if every is None else {**own, "release_every": every}
    return getattr(sp.papers if kind in sp.papers.__all__ else sp, kind)(**given)


def test_algorithms_center_or_refuse() -> None:
    rows = table("algorithm")
    assert {row["algorithm"].split()[0] for row in rows} == {
        "PrivateFPL", "PerturbedLeader", "SlidingWindowPCA", "Tumbling", "Oja", "PrivateOja", "DPPCA",
        "PrivateSketch",
    }  # fmt: skip
    for row in rows:
        algorithm = made(row["algorithm"])
        assert algorithm.center == (row["center"] == "yes")  # by default where it can be
        if algorithm.center:
            assert sp.Stream(algorithm, row_norm=1.0, seed=0).push_many(ROWS).releases[-1].is_centered
        else:
            with pytest.raises(TypeError, match="center"):
                type(getattr(algorithm, "mechanism", algorithm))(center=True)


def goes(name: str, unit: Any, every: Any) -> str:
    """Return "yes" if the algorithm releases three rows of two people, on three days; "no" if it is refused."""
    try:
        algorithm = made(name, unit, every)
    except TypeError as problem:  # there is no such parameter
        assert "unit" in str(problem) or "release_every" in str(problem)  # noqa: PT017
        return "no"
    except UsageError as problem:
        assert f"release_every={every!r}" in str(problem)  # noqa: PT017
        return "no"
    days = [f"2026-01-0{i}T12:00+00:00" for i in (1, 2, 3)]
    frame = pd.DataFrame({"who": ["p", "q", "p"], "at": days, "a": ROWS[:, 0], "b": ROWS[:, 1]})
    stream = sp.Stream(algorithm, row_norm=1.0, seed=0, features=["a", "b"], start=None if every is None else START)
    times = {} if every is None else {"time": "at", "end": "2026-01-04T00:00+00:00"}
    list(stream.run(frame.drop(columns=[*["who"] * (unit is None), *["at"] * (every is None)]), **times))
    assert stream.release is not None
    assert stream.guarantee.unit == ("one row" if unit is None else unit.text)
    assert (stream.guarantee.adjacency == "add-remove") is (every is not None)
    return "yes"


def test_the_table_of_people_and_calendars_is_what_happens() -> None:
    day, person = sp.Person(column="who", period="1d"), sp.Person(column="who")
    lines = ["| algorithm | people | calendar | people with a calendar | in one day |", "|---|---|---|---|---|"]
    for row in table("algorithm"):
        name = row["algorithm"]
        asked = [goes(name, *one) for one in ((person, None), (None, "1d"), (person, "1d"), (day, "1d"))]
        lines += [f"| {name} | {' | '.join(asked)} |"] * ("yes" in asked)
    assert "\n".join(["", *lines, "\n"]) in PAGE, "\n".join(lines)


def test_missing_cells_are_corrected_or_refused_with_both_settings() -> None:
    gaps = np.where(np.random.default_rng(0).random((6, 2)) < 0.3, np.nan, np.resize(ROWS, (6, 2)))
    rows = table("algorithm", "public")
    for row in rows:
        kind, *more = row["algorithm"].split()
        if kind == "PrivateFPL":
            options = {"noise=tree": {"noise": "tree"}, "noise=discrete": {"noise": sp.Tree(discrete=True)},
                       "publish_regret": {"publish_regret": True}}  # fmt: skip
            algorithm: Any = sp.PrivateFPL(release_every=1, horizon=6, **BUDGET, **options.get("".join(more), {}))  # type: ignore[arg-type]
        else:
            algorithm = made(row["algorithm"])
        for shares in ("public", "private"):
            rates: Any = 0.7 if shares == "public" else "private"
            given: dict[str, Any] = {"row_norm": 1.0, "seed": 0, "features": 2, "on_missing": "cell"}
            if row[shares] == "yes":
                stream = sp.Stream(algorithm, **given, missing_rates=rates)
                stream.push_many(gaps)
                assert stream.release is not None
                assert "present" in stream.release.details
                assert stream.release.completed_noise() is not None or not algorithm.guarantee.mu
            else:
                setting = "missing_rates='private'" if row["public"] == "yes" else "on_missing='cell'"
                with pytest.raises(UsageError, match=rf"(?s){setting}.*{kind}\(.*correct=False"):
                    sp.Stream(algorithm, **given, missing_rates=rates)
                sp.Stream(algorithm, **given, correct=False).push_many(gaps)


def test_the_default_of_center_depends_on_the_rewards_and_is_shown() -> None:
    plain, rewards = sp.PrivateFPL(**BUDGET), sp.PrivateFPL(**BUDGET, publish_regret=True)
    assert (plain.center, rewards.center) == (True, False)
    assert "center=True" in repr(plain)
    assert plain == sp.PrivateFPL(**BUDGET, center=True) != sp.PrivateFPL(**BUDGET, center=False)
    assert sp.PrivateFPL(**BUDGET, publish_regret=True, center=True).center  # both together, if asked for
    with pytest.raises(BadParameterError, match="center='no'"):
        sp.PrivateFPL(**BUDGET, center="no")  # type: ignore[arg-type]
