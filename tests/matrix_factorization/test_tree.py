"""The binary tree: noise tables, the nodes that are kept, and integer noise."""

import numpy as np
import pytest

from streampca.errors import HorizonReachedError
from streampca.linalg.svec import entry_weights
from streampca.matrix_factorization.tree import BinaryTree, ExactTree
from streampca.privacy.discrete_gaussian import UNIT_BITS
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.privacy.randomness import Randomness


def sums(value, n, source):
    outlet, values = Outlet(source, source.first), [value]
    for _ in range(n):
        values.append(values[-1].advance(outlet.hide("sum")))
    return values


def the_source(seed=0):
    return NoiseSource(Randomness.from_seed(seed), "tree")


@pytest.mark.parametrize("make", [lambda: BinaryTree(100, 1.0).start(2), lambda: ExactTree(100, 1.0).start(3)])
def test_a_snapshot_keeps_a_name_for_each_node_in_use(make):
    """16 bytes and a number a node, and no noise."""
    for n, value in enumerate(sums(make(), 100, the_source())):
        snapshot = value.snapshot()
        assert sorted(snapshot) == ["draws", "n", "names"]
        assert len(value.nodes) == n.bit_count()
        assert snapshot["names"].shape == (n.bit_count(), 16)
        assert snapshot["names"].dtype == np.uint8
        # One vector an input, so the numbers say where the nodes end: n, and n without its last bits.
        ends = [n >> level << level for level in reversed(range(n.bit_length())) if n >> level & 1]
        assert snapshot["draws"].tolist() == ends


def test_integer_noise_is_the_sum_of_its_nodes():
    tree, source = ExactTree(37, 0.5), the_source()
    values = sums(tree.start(6), 37, source)
    with pytest.raises(HorizonReachedError, match="37"):
        values[-1].advance(None)  # before the vector is used
    outlet = Outlet(source, source.first)
    nodes = [tree.draw_node(outlet.hide("sum"), 6) for _ in range(37)]
    used = (tree.reconstruction(37) / tree.node_std).round().astype(np.int64)
    np.testing.assert_array_equal([value.noise for value in values[1:]], used @ np.array(nodes))


def test_measured_sd_of_integer_noise():
    """Within 5 standard errors of what `std` says, four times (each a false alarm below 6e-7)."""
    d = 90
    tree = ExactTree(16, 0.7)
    values = sums(tree.start(d * (d + 1) // 2), 16, the_source())
    for n in (1, 7, 15, 16):
        samples = values[n].noise * 2.0**-UNIT_BITS / entry_weights(d)
        off = np.sqrt(np.mean(samples**2)) / tree.std(n) - 1.0
        assert abs(off) < 5.0 / np.sqrt(2.0 * samples.size) < 0.06
