"""docs/explanation/combinations.md: what is listed works, and what is not is refused."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
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
ROWS = np.array([[0.5, 0.1], [0.4, -0.2], [0.6, 0.0]])


def table(first: str) -> list[dict[str, str]]:
    lines = PAGE[PAGE.index(f"| {first} |") :].split("\n\n")[0].strip().splitlines()
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


def made(name: str) -> Any:
    kind, *more = name.split()
    if kind == "Tumbling":
        pure = "LaplaceCovariance" in more[0]
        given = {name: value for name, value in BUDGET.items() if not pure or name != "delta"}
        room = sp.papers if more[0] in sp.papers.__all__ else sp
        return sp.Tumbling(getattr(room, more[0])(**given), release_every=3)
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


def test_the_default_of_center_depends_on_the_rewards_and_is_shown() -> None:
    plain, rewards = sp.PrivateFPL(**BUDGET), sp.PrivateFPL(**BUDGET, publish_regret=True)
    assert (plain.center, rewards.center) == (True, False)
    assert "center=True" in repr(plain)
    assert plain == sp.PrivateFPL(**BUDGET, center=True) != sp.PrivateFPL(**BUDGET, center=False)
    assert sp.PrivateFPL(**BUDGET, publish_regret=True, center=True).center  # both together, if asked for
    with pytest.raises(BadParameterError, match="center='no'"):
        sp.PrivateFPL(**BUDGET, center="no")  # type: ignore[arg-type]
