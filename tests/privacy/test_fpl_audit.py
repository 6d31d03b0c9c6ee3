"""Can anyone tell neighbours apart beyond mu, from everything that PrivateFPL releases?

The released matrices are Gaussian, so the best test there is weighs them by the inverse covariance of the noise over
time and what the differing row changes: <(B B^T)^-1 A e_j (x) change, released>, for noise B z. Its shift, in units of
its sd, is measured by the real stream on both neighbours. With 400 runs a side the estimate has a standard error of
0.07; the test alarms at 4 of them (rate 3e-5 a test). The bugs that it must catch run with ``pytest -m long``;
`streampca.auditing` plants bugs of the same kinds in every run of the tests.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import streampca as sp
from streampca.linalg import lattice
from streampca.linalg.svec import svec
from streampca.privacy.outlet import Outlet
from streampca.processors import base, private_fpl
from streampca.rows import admission

pytestmark = pytest.mark.ci

RUNS, T, AT, D = 400, 6, 2, 2
MU = 1.5
EPSILON, DELTA = 2.0, sp.privacy.gaussian.delta_at(MU, 2.0)
SLACK = 4 * np.sqrt(2 / RUNS)

ROW, OTHER = np.array([0.0, 1.0]), np.array([1.0, 0.0])
NEIGHBOURS = {"zero-out": (ROW, np.zeros(D)), "replace": (ROW, OTHER)}


def measured(make: Callable[[], sp.PrivateFPL], adjacency: str, stretch: float = 1.0) -> float:
    """The shift, in units of the noise, between streams with and without the row."""
    rows = np.tile([0.6, 0.4], (T, 1))
    with_row, without = (np.where((np.arange(T) == AT)[:, None], row * stretch, rows) for row in NEIGHBOURS[adjacency])
    reconstruction, moved = make().mechanism.reconstruction(T), (np.arange(T) >= AT).astype(float)
    weights = np.linalg.solve(reconstruction @ reconstruction.T, moved)
    change = svec(np.outer(with_row[AT], with_row[AT]) - np.outer(without[AT], without[AT]))
    direction = np.kron(weights, change)

    def statistics(stream_rows: np.ndarray, offset: int) -> np.ndarray:
        out = []
        for run in range(RUNS):
            stream = sp.Stream(make(), seed=2 * run + offset, regret=None)
            released = [svec(release.gram) for release in stream.push_many(stream_rows).releases]
            out.append(direction @ np.concatenate(released))
        return np.array(out)

    yes, no = statistics(with_row, 0), statistics(without, 1)
    return float((yes.mean() - no.mean()) / np.sqrt((yes.var(ddof=1) + no.var(ddof=1)) / 2))


def claims(noise: Any, adjacency: Any, kind: type[sp.PrivateFPL] = sp.PrivateFPL) -> Callable[[], sp.PrivateFPL]:
    given = {"epsilon": EPSILON, "delta": DELTA, "horizon": T, "noise": noise, "adjacency": adjacency}
    return lambda: kind(n_components=1, **given)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize(("noise", "exact"), [("blt", False), ("tree", False), ("tree", True)])
def test_no_more_can_be_told_than_is_claimed_and_hardly_less(noise: str, exact: bool, adjacency: str) -> None:
    make = claims(sp.Tree(discrete=True) if exact else noise, adjacency)
    assert make().guarantee.mu == pytest.approx(MU)
    told = measured(make, adjacency)
    assert told < MU + SLACK
    # Some position of the tree meets its claim; this one may be spared a little.
    assert told > 0.7 * MU - SLACK


class HalfTheNoise(sp.PrivateFPL):
    @property
    def mechanism(self):  # type: ignore[no-untyped-def]
        return replace(super().mechanism, mu=2.0 * self.budget.mu)


class WrongSensitivity(sp.PrivateFPL):
    """Replaced rows, noise for zeroed ones."""

    @property
    def budget(self) -> sp.Budget:  # type: ignore[override]
        return sp.Budget(self.epsilon, self.delta, "zero-out")


class WrongDepth(sp.PrivateFPL):
    """A tree calibrated as if a row touched one node."""

    @property
    def mechanism(self):  # type: ignore[no-untyped-def]
        return replace(super().mechanism, mu=self.budget.mu * np.sqrt(T.bit_length()))


def noise_of_the_first(self: Outlet, kind: str, exact, noise, std: float):  # type: ignore[no-untyped-def]
    """Planted bug: the noise of the first release, used for all."""
    after = noise if noise.n else noise.advance(self.hide(kind, *exact.hidden))
    return after, exact.noisy(after.noise, std)


@pytest.mark.long
@pytest.mark.parametrize(
    ("bug", "noise", "adjacency"),
    [(HalfTheNoise, "blt", "zero-out"), (WrongSensitivity, "blt", "replace"), (WrongDepth, "tree", "zero-out")],
)
def test_planted_bugs_are_caught(bug: type[sp.PrivateFPL], noise: str, adjacency: str) -> None:
    assert measured(claims(noise, adjacency, bug), adjacency) > MU + SLACK


def test_reused_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two releases under one noise differ by the row between them, exactly."""

    def between() -> float:
        stream = sp.Stream(claims("blt", "zero-out")(), seed=1)
        first, second = [r.gram for r in stream.push_many(np.array([[0.3, 0.3], [0.5, 0.5]])).releases]
        return float(np.abs(second - first - 0.25).max())

    assert between() > 0.01
    monkeypatch.setattr(Outlet, "running", noise_of_the_first)
    assert between() < 1e-5


@pytest.mark.long
def test_unclipped_rows_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    make = claims("blt", "zero-out")
    assert measured(make, "zero-out", stretch=1.5) < MU + SLACK

    def unclipped(rows: Any) -> Any:
        made = np.trunc(rows * 2.0**20) / 2.0**20
        return made, np.vecdot(made, made), np.empty(0, dtype=np.int64)

    monkeypatch.setattr(admission, "admitted_rows", unclipped)
    monkeypatch.setattr(base, "is_admitted", lambda rows: True)
    assert measured(make, "zero-out", stretch=1.5) > MU + SLACK


def test_the_audited_names_exist() -> None:
    assert lattice.admitted_rows is admission.admitted_rows
    assert base.is_admitted is lattice.is_admitted
    assert private_fpl.PrivateFPL is sp.PrivateFPL
