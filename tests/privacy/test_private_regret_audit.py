"""Can anyone tell neighbours apart beyond mu, from Gram matrices and rewards together?

The adversary knows every other row and sees every release, so it subtracts what it knows, rewards included, and picks
the target row after seeing the subspace in play: a unit row inside it (against zero, or against a row orthogonal to
it). What is left is noise plus the target's change; the best test weighs it by the inverse covariance of the noise. A
second test looks at rewards alone.

The shift is that of the mean over pairs of runs with one seed each, which share their noise, since the noise is not
bound to the rows here (`blind`); its sd is estimated from 2 x 400 runs, within 2.5 %. A tenth above mu is an alarm: 4
standard errors, 3e-5. The sensitivity of the matrix alone makes mu a tenth larger, which takes 2 x 1000 runs to see
(1.6 %): that is for ``pytest -m long``. `streampca.auditing` computes this loss in every run.
"""

from collections.abc import Callable

import numpy as np
import pytest

import streampca as sp
from streampca.linalg.lattice import onto_ball
from streampca.linalg.svec import svec
from streampca.privacy.gaussian import delta_at
from streampca.privacy.outlet import NoiseSource
from streampca.processors import private_fpl
from streampca.processors.rewards import REWARD_WEIGHT, RewardSum, score
from streampca.release.scoring import Scoring

pytestmark = pytest.mark.ci

RUNS, T, D = 400, 4, 2
MU, SLACK = 1.5, 1.1
MANY, LITTLE = 1000, 1.065
KNOWN = onto_ball(np.tile([0.6, 0.4], (T, 1)))


@pytest.fixture(autouse=True)
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    link = NoiseSource.link
    monkeypatch.setattr(NoiseSource, "link", lambda self, chain, kind, fresh, exact: link(self, chain, kind, fresh, ()))


def make(adjacency: str, noise: str) -> sp.PrivateFPL:
    return sp.PrivateFPL(
        n_components=1, epsilon=2.0, delta=delta_at(MU, 2.0), horizon=T, noise=noise, adjacency=adjacency,
        publish_regret=True, n_features=D,
    )  # type: ignore[arg-type]  # fmt: skip


def left_over(seed: int, adjacency: str, noise: str, at: int, has_row: bool) -> tuple[np.ndarray, np.ndarray]:
    """What a run's releases hold beside the known rows, (T, 4), and what the target would change in each, (4,)."""
    stream = sp.Stream(make(adjacency, noise), seed=seed, regret=None)
    gram, reward, out, change = np.zeros(3), 0.0, [], np.zeros(4)
    for t in range(T):
        scoring = Scoring.of(stream.engine.subspace.basis)
        basis = scoring.basis
        row = KNOWN[t]
        if t == at:
            inside = onto_ball(basis.T)[0]
            outside = onto_ball(np.array([[-basis[1, 0], basis[0, 0]]]))[0] if adjacency == "replace" else np.zeros(D)
            pair = [
                np.append(svec(np.outer(a, a)), REWARD_WEIGHT * score(a[None], scoring)[0]) for a in (inside, outside)
            ]
            change = pair[0] - pair[1]
            row = inside if has_row else outside
            gram, reward = gram + pair[1][:3], reward + pair[1][3] / REWARD_WEIGHT
        else:
            gram, reward = gram + svec(np.outer(row, row)), reward + float(score(row[None], scoring)[0])
        release = stream.push(row).release
        assert release is not None
        told = np.append(svec(release.gram) - gram, REWARD_WEIGHT * (release.details["rewards"]["sum"] - reward))
        out.append(told)
    return np.array(out), change


def measured(adjacency: str = "zero-out", noise: str = "blt", *, at: int = 2, runs: int = RUNS) -> float:
    """The larger shift of the two tests, in units of their noise."""
    reconstruction, moved = make(adjacency, noise).mechanism.reconstruction(T), (np.arange(T) >= at).astype(float)
    weights = np.linalg.solve(reconstruction @ reconstruction.T, moved)
    scores = np.zeros((2, runs, 2))
    for run in range(runs):
        for has_row in (0, 1):
            rest, change = left_over(run, adjacency, noise, at, bool(has_row))
            scores[has_row, run] = weights @ rest @ change, weights @ rest[:, 3]
    shift = (scores[1] - scores[0]).mean(axis=0)
    sd = np.sqrt(scores.var(axis=1).mean(axis=0))
    return float((shift / np.maximum(sd, 1e-12)).max())


@pytest.mark.parametrize(
    ("adjacency", "noise", "at"), [("zero-out", "blt", 2), ("replace", "tree", 2), ("zero-out", "tree", 0)]
)
def test_no_more_can_be_told_than_is_claimed_and_hardly_less(adjacency: str, noise: str, at: int) -> None:
    told = measured(adjacency, noise, at=at)
    assert told < MU * SLACK
    assert told > 0.75 * MU  # some position meets the claim; this one may be spared a little


def publish_exactly(self: RewardSum, noise: float, std: float) -> dict[str, float]:
    return {"sum": self.total / 2.0**30, "std": std / REWARD_WEIGHT}


def a_tenth_of_the_noise(honest: Callable[..., dict[str, float]]) -> Callable[..., dict[str, float]]:
    return lambda self, noise, std: honest(self, 0.1 * noise, std)


def test_rewards_published_exactly_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RewardSum, "noisy", publish_exactly)
    assert measured(runs=50) > 1e6


def test_rewards_with_too_little_noise_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RewardSum, "noisy", a_tenth_of_the_noise(RewardSum.noisy))
    assert measured(runs=50) > 2.0 * MU


@pytest.mark.long
def test_the_sensitivity_of_the_matrix_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first row touches all levels of the tree, so nothing is spared.
    assert MU / LITTLE < measured(noise="tree", at=0, runs=MANY) < MU * LITTLE
    monkeypatch.setattr(private_fpl, "joint_sensitivity", lambda gram: gram)
    assert measured(noise="tree", at=0, runs=MANY) > MU * LITTLE


def test_no_reward_counts_for_more_than_one() -> None:
    total = RewardSum(0, Scoring(np.array([[1.5], [0.0]]))).add(np.array([[1.0, 0.0], [0.5, 0.0]]))
    assert total.noisy(0.0, 1.0)["sum"] == 1.0 + 0.75**2
