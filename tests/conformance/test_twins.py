"""Two continuations of one run, and copies of single sums: both together cost sqrt(2) mu, by dense matrices.

The model: the vectors up to the fork are shared, those after it are independent. All outputs of all
continuations are M z, a change of one input moves them by a, and both together tell it by

    mu**2 = a^T (M M^T)^+ a = |M^+ a|**2, if a is in the range of M; otherwise it shows exactly.
"""

import math

import numpy as np
import pytest

from streampca.matrix_factorization.blt import AnytimeBLT, GeometricBLT
from streampca.matrix_factorization.tree import BinaryTree, ExactTree
from streampca.matrix_factorization.window import ForgettingBLT, StationaryBLT, WindowDifference

MU, SENSITIVITY = 0.7, 1.5
LIMIT = math.sqrt(2.0) * MU * (1.0 + 1e-9)
KINDS = {
    "blt": lambda n: GeometricBLT(n, MU, SENSITIVITY),
    "anytime": lambda n: AnytimeBLT(MU, SENSITIVITY),
    "anytime, restarted": lambda n: AnytimeBLT(MU, SENSITIVITY, restart_after=n // 3),
    "tree": lambda n: BinaryTree(n, MU, SENSITIVITY),
    "exact tree": lambda n: ExactTree(n, MU, SENSITIVITY),
    "stationary": lambda n: StationaryBLT(n // 4, MU, SENSITIVITY),
    "twin": lambda n: WindowDifference(n // 4, MU, SENSITIVITY),
    "forgetting": lambda n: ForgettingBLT(n // 4, MU, SENSITIVITY),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
LENGTHS = (32, 33)


def two(mechanism, n, fork, ahead=0):
    reconstruction, workload = mechanism.reconstruction(n), SENSITIVITY * mechanism.workload(n)
    shared = np.arange(reconstruction.shape[1]) % n < fork + ahead
    before, after = reconstruction[:fork], reconstruction[fork:]
    own = after[:, ~shared]
    nothing = np.zeros_like(own)
    joint = np.vstack(
        [
            np.hstack([before[:, shared], np.zeros((fork, 2 * own.shape[1]))]),
            np.hstack([after[:, shared], own, nothing]),
            np.hstack([after[:, shared], nothing, own]),
        ]
    )
    both = np.vstack([workload[:, :fork], workload[fork:, :fork]])
    first = np.vstack([workload[:, fork:], np.zeros((n - fork, n - fork))])
    second = np.vstack([np.zeros((n, n - fork)), workload[fork:, fork:]])
    return joint, both, first, second


def absorbed(joint, moves):
    found = np.linalg.pinv(joint, rcond=1e-12) @ moves
    np.testing.assert_allclose(joint @ found, moves, atol=1e-9)
    return found


def worst(shared, first, second):
    norms = [np.linalg.norm(shared, axis=0).max(initial=0.0)]
    if first.shape[1]:
        squares = (first**2).sum(axis=0)[:, None] + (second**2).sum(axis=0)
        norms.append(math.sqrt(float((squares + 2.0 * np.abs(first.T @ second)).max())))
    return norms


@every_kind
@pytest.mark.parametrize("n", LENGTHS)
def test_two_continuations_cost_sqrt_2_at_every_fork(kind, n):
    mechanism = KINDS[kind](n)
    most = []
    for fork in range(n + 1):
        joint, *moves = two(mechanism, n, fork)
        most.append(worst(*(absorbed(joint, part) for part in moves)))
        assert max(most[-1]) <= LIMIT
    if kind != "anytime":  # it has more noise than 33 sums need
        assert max(max(pair) for pair in most) > 1.38 * MU  # the bound is sharp: an input in each continuation
        assert max(pair[0] for pair in most) > 1.1 * MU  # and an input before the fork costs more than mu, too


@every_kind
@pytest.mark.parametrize("n", LENGTHS)
def test_a_copy_of_one_sum_at_every_input_costs_sqrt_2(kind, n):
    """At each input a copy forks, takes that input with a vector of its own, and ends: n continuations."""
    mechanism = KINDS[kind](n)
    reconstruction, workload = mechanism.reconstruction(n), SENSITIVITY * mechanism.workload(n)
    own = np.arange(reconstruction.shape[1]) % n == np.arange(n)[:, None]
    joint = np.vstack(
        [
            np.hstack([reconstruction, np.zeros_like(reconstruction)]),
            np.hstack([reconstruction * ~own, reconstruction * own]),
        ]
    )
    moves = absorbed(joint, np.vstack([workload, workload]))
    assert np.linalg.norm(moves, axis=0).max() <= LIMIT
    assert np.linalg.norm(moves, axis=0).max() > 1.05 * MU or kind == "anytime"


@every_kind
def test_a_vector_drawn_ahead_and_shared_gives_the_rows_away(kind):
    """The vector of the first sum after the fork is drawn before it: the two sums differ by the rows alone."""
    n, fork = 32, 11
    mechanism = KINDS[kind](n)
    for ahead, leaks in ((0, False), (1, True)):
        joint, _, first, _ = two(mechanism, n, fork, ahead)
        difference = joint[fork] - joint[n]  # sums fork + 1 of both continuations
        assert (np.abs(difference).max() == 0.0) == leaks
        one = first[:, :1]  # an input of one continuation, not of the other
        rest = one - joint @ (np.linalg.pinv(joint, rcond=1e-12) @ one)
        assert (np.linalg.norm(rest) > 0.1 * SENSITIVITY) == leaks
