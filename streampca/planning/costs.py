"""Memory and time, to the nearest factor of two: one core, releases read as they come.

Fitted to CPU times at d = 10 to 400 on a machine of 2024 (`streampca bench` measures yours).
"""

from __future__ import annotations

from streampca.linalg.svec import svec_size

#: Cost of the noise of one release, relative to BLT: (factor, extra microseconds).
_NOISE = {"blt": (1.0, 0.0), "tree": (0.9, 0.0), "window": (1.6, 5.0), "one": (0.6, 0.0)}
#: Packed vectors that a mechanism keeps or makes on the way.
VECTORS = {"blt": 10, "tree": 10, "window": 12, "one": 1}


def gram_seconds(rows: int, n_features: int) -> float:
    """Admit rows and add them to a Gram matrix, in blocks."""
    return rows * (0.4 + 1.8e-4 * n_features**2) * 1e-6


def release_seconds(releases: int, n_features: int, noise: str = "blt") -> float:
    """Draw the noise of releases and solve for their subspaces."""
    factor, extra = _NOISE[noise]
    drawn = extra + factor * (40.0 + 0.018 * svec_size(n_features))
    solved = 10.0 + 0.025 * n_features**2
    return releases * (drawn + solved) * 1e-6


def gram_bytes(n_features: int, noise: str = "blt") -> int:
    """Exact sums, the noise's state and one release."""
    packed = 8 * svec_size(n_features)
    return 8 * n_features**2 + (4 + VECTORS[noise]) * packed


def oja_seconds(rows: int, n_features: int) -> float:
    """Absorb rows into sums of gradients."""
    return rows * (0.3 + 0.022 * n_features) * 1e-6


def oja_bytes(n_features: int, n_components: int) -> int:
    """Basis, sum of gradients and a chunk of rows."""
    return 8 * n_features * (4 * n_components + 64)
