"""Prefix sums of an endless stream from one mechanism per block of inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from streampca.errors import BadParameter
from streampca.linalg.types import FloatArray
from streampca.prefix_sums.base import PrefixSum, RunningNoise, check_length
from streampca.prefix_sums.blt import GeometricBLT
from streampca.prefix_sums.tree import BinaryTree
from streampca.privacy.randomness import NoiseStream

Kind = Literal["blt", "tree"]


@dataclass(frozen=True)
class BlockRestart(PrefixSum):
    """A fresh mechanism for every block of ``window`` inputs; sums run on across blocks.

    Parameters
    ----------
    window : inputs in a block.
    mu : Gaussian-DP parameter of the whole endless sequence.
    sensitivity : bound on the norm by which one input may change.
    kind : ``"blt"`` or ``"tree"``: the mechanism of a block.

    Notes
    -----
    Privacy: an input is in one block, and that block's mechanism is mu-GDP per input; adaptive inputs included.

    Differences of prefix sums at most ``window`` apart touch two blocks at most, so
    their noise does not grow with time: at mu = 1, at most 4.12, 4.81, 6.21, 6.90 for blocks of
    2**8, 2**10, 2**14, 2**16 with ``"blt"``. `StationaryBLT` needs less; this is what it is compared with.
    """

    window: int
    mu: float
    sensitivity: float = 1.0
    kind: Kind = "blt"

    horizon = None

    def __post_init__(self) -> None:
        self._validate()
        check_length("window", self.window)
        if self.kind not in ("blt", "tree"):
            raise BadParameter(f"kind={self.kind!r} is not known; use 'blt' or 'tree'")

    @cached_property
    def block(self) -> GeometricBLT | BinaryTree:
        """The mechanism of one block."""
        make = GeometricBLT if self.kind == "blt" else BinaryTree
        return make(self.window, self.mu, self.sensitivity)

    def std(self, n: int) -> float:
        """Exact sd of the noise in the sum of the first n inputs."""
        self._check(n)
        whole, rest = divmod(n, self.window)
        ahead = self.block.std(rest) if rest else 0.0
        return math.sqrt(whole * self.block.std(self.window) ** 2 + ahead**2)

    def lag_std(self, lag: int) -> float:
        """Bound on the sd, over all times, of the noise in a difference of prefix sums ``lag`` apart."""
        whole = max(lag - 2, 0) // self.window  # blocks that lie wholly inside, ends apart
        if isinstance(self.block, BinaryTree):
            # The last sum of a block is one node if the window is a power of two, up to L nodes if not.
            levels = self.block.levels
            nodes = 2.0 * levels if self.window & (self.window - 1) == 0 else 3.0 * levels
            ends = nodes * self.block.node_std**2
        else:
            ends = _suffix_square(self.window) * self.block.unit**2 + float(np.max(self.block.stds(self.window)) ** 2)
        return math.sqrt(ends + whole * self.block.std(self.window) ** 2)

    def decoder(self, n: int) -> FloatArray:
        """Dense B (n, m). For tests."""
        self._check(n)
        blocks = [self.block.decoder(length) for length in self._lengths(n)]
        out = np.zeros((n, sum(b.shape[1] for b in blocks)))
        row = column = 0
        for block in blocks:
            out[row : row + block.shape[0], column : column + block.shape[1]] = block
            out[row + block.shape[0] :, column : column + block.shape[1]] = block[-1]
            row, column = row + block.shape[0], column + block.shape[1]
        return out

    def encoder(self, n: int) -> FloatArray:
        """Dense C (m, n). For tests."""
        self._check(n)
        blocks = [self.block.encoder(length) for length in self._lengths(n)]
        out = np.zeros((sum(b.shape[0] for b in blocks), n))
        row = column = 0
        for block in blocks:
            out[row : row + block.shape[0], column : column + block.shape[1]] = block
            row, column = row + block.shape[0], column + block.shape[1]
        return out

    def _lengths(self, n: int) -> list[int]:
        whole, rest = divmod(n, self.window)
        return [self.window] * whole + ([rest] if rest else [])

    def start(self, size: int, noise: NoiseStream) -> RunningNoise:
        """A fresh noise sequence for sums of vectors of ``size`` coordinates."""
        return BlockNoise(self, size, noise)


class BlockNoise(RunningNoise):
    """Running noise of a `BlockRestart`. Curator only."""

    def __init__(self, mechanism: BlockRestart, size: int, noise: NoiseStream) -> None:
        self.n = 0
        self._mechanism, self._size, self._noise = mechanism, size, noise
        self._past = np.zeros(size)
        self._inner = self._begin(0)
        self._latest = np.zeros(size)

    def _begin(self, block: int) -> RunningNoise:
        # Indices inside a block are at most `window` on each level: twice that keeps blocks apart.
        shifted = _Shifted(self._noise, 2 * self._mechanism.window * block)
        return self._mechanism.block.start(self._size, shifted)

    def advance(self) -> FloatArray:
        """The noise of the next prefix sum."""
        n = self._next(None)
        if n > 1 and (n - 1) % self._mechanism.window == 0:
            self._past = self._latest.copy()
            self._inner = self._begin((n - 1) // self._mechanism.window)
        np.add(self._past, self._inner.advance(), out=self._latest)
        self.n = n
        return self._latest

    def state(self) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues. As secret as the sums."""
        return {"n": self.n, "inner": self._inner.state(), "past": self._past.copy(), "latest": self._latest.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        n = int(state["n"])
        inner = self._begin(max(n - 1, 0) // self._mechanism.window)
        inner.restore(state["inner"])
        self._inner = inner
        self._past = np.array(state["past"])
        self._latest[...] = state["latest"]
        self.n = n


class _Shifted(NoiseStream):
    """Another stream's draws, at indices shifted by a constant."""

    def __init__(self, noise: NoiseStream, offset: int) -> None:
        self._source, self._offset = noise, offset

    def normal(self, index: int, count: int, out: FloatArray | None = None) -> FloatArray:
        return self._source.normal(index + self._offset, count, out)


@lru_cache(maxsize=32)
def _suffix_square(horizon: int) -> float:
    """Largest variance of (last sum - sum m) over m, for the geometric BLT at mu = sensitivity = 1.

    Backwards in time, the rest of the sum is linear in the buffers r and the draws to come: rho . r + sum_j g_j z_j.
    """
    mechanism = GeometricBLT(horizon, 1.0)
    blt = mechanism.buffers
    scales = mechanism.scales(1, horizon)
    theta = 1.0 - blt.a_hat
    log_pairs = blt.log_theta_hat[:, None] + blt.log_theta_hat
    rho, ahead, largest = np.zeros(blt.count), 0.0, 0.0
    for m in range(horizon - 1, -1, -1):  # after this step: the rest is of sums m + 1 .. horizon
        ahead += (scales[m] + float(rho.sum())) ** 2
        rho = scales[m] * blt.omega_hat + theta * rho
        covariance = -np.expm1(m * log_pairs) / blt.gaps_hat
        largest = max(largest, ahead + float(rho @ covariance @ rho))
    return largest
