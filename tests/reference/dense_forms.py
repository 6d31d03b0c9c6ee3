"""Dense forms that only tests need: strategies of matrix factorizations, and releases of full matrices."""

import numpy as np
from scipy.linalg import solve_triangular

from streampca.linalg.svec import pack_entries
from streampca.release.release import Release


def strategy(mechanism, n):
    """Return C (m, n) with B C = A and columns of norm at most mu / sensitivity."""
    # Further columns of B belong to noise that no input needs.
    decoder = mechanism.reconstruction(n)
    encoder = solve_triangular(decoder[:, :n], mechanism.workload(n), lower=True)
    return np.pad(encoder, ((0, decoder.shape[1] - n), (0, 0)))


def gram_release(gram, **fields):
    """Create a release from a full symmetric matrix instead of a packed one."""
    return Release(packed_gram=pack_entries(gram), **fields)
