"""Noise as a pure function of a key and a label.

`Randomness` holds a 256-bit key: fresh from the operating system by default,
derived from a seed for tests and scenarios. `Randomness.stream` derives an
independent `NoiseStream` for each label, and each index of a stream names one
draw: the same key, label and index give the same numbers, whenever and in
whatever order they are asked for. So a replay needs no stored generator
state, and no two labels ever share noise.

Words come from AES-256 in counter mode (the high half of the counter is the
index, the low half counts blocks), and become normals by a 256-layer ziggurat
of our own (Marsaglia and Tsang 2000 in the form of Doornik 2005), so neither
depends on the version of another library's generator.
"""

from __future__ import annotations

import math
import secrets
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from streampca.errors import BadParameter
from streampca.linalg.types import FloatArray

KEY_BYTES = 32
#: Changes whenever the numbers drawn for a given key, label and index change.
VERSION = 1

_LAYERS = 256
_R = 3.6541528853610088
_AREA = 0.00492867323399


def _ziggurat() -> tuple[FloatArray, FloatArray, FloatArray]:
    """Right edges of the layers, their acceptance ratios, and the density at the edges."""
    x = np.empty(_LAYERS + 1)
    density = math.exp(-0.5 * _R * _R)
    x[0], x[1], x[_LAYERS] = _AREA / density, _R, 0.0
    for i in range(2, _LAYERS):
        x[i] = math.sqrt(-2.0 * math.log(_AREA / x[i - 1] + density))
        density = math.exp(-0.5 * x[i] * x[i])
    return x, x[1:] / x[:-1], np.exp(-0.5 * x * x)


_X, _RATIO, _DENSITY = _ziggurat()
# Layer and sign are read off one 9-bit field: the sign is folded into the edge.
_SIGNED_X = np.concatenate([_X[:-1], -_X[:-1]])
_RATIO_BY_FIELD = np.concatenate([_RATIO, _RATIO])
_FIELD = np.uint64(2 * _LAYERS - 1)
_TOP = np.uint64(11)
_TO_UNIT = 2.0**-53


class Randomness:
    """A key, and the independent noise streams derived from it.

    Parameters
    ----------
    key : 32 secret bytes; drawn from `secrets` if left out. Whoever knows the
        key can subtract the noise: it is as secret as the rows.
    """

    def __init__(self, key: bytes | None = None) -> None:
        if key is None:
            key = secrets.token_bytes(KEY_BYTES)
        if not (isinstance(key, bytes) and len(key) == KEY_BYTES):
            raise BadParameter(f"key must be {KEY_BYTES} bytes, or None for a fresh one from the system")
        self._key = key
        self.is_seeded = False

    @classmethod
    def from_seed(cls, seed: int) -> Randomness:
        """Reproducible randomness for tests and scenarios; marks guarantees as seeded."""
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            raise BadParameter(f"seed={seed!r} must be an integer, or None for noise from the system")
        made = cls(blake2b(str(int(seed)).encode(), digest_size=KEY_BYTES, person=b"streampca seed").digest())
        made.is_seeded = True
        return made

    def stream(self, *label: str | int) -> NoiseStream:
        """The noise stream of a label, independent of every other label's."""
        text = "\x1f".join(f"{type(part).__name__}:{part}" for part in (VERSION, *label))
        return NoiseStream(
            blake2b(text.encode(), key=self._key, digest_size=KEY_BYTES, person=b"streampca noise").digest()
        )

    def __repr__(self) -> str:
        return f"Randomness({'seeded' if self.is_seeded else 'secret'})"


class NoiseStream:
    """Addressable random numbers: `index` names a draw, equal indices give equal numbers."""

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
        self._zeros = memoryview(b"")

    def words(self, index: int, count: int) -> npt.NDArray[np.uint64]:
        """``count`` independent uniform 64-bit words."""
        self._seek(index)
        return self._next(count)

    def uniform(self, index: int, count: int) -> FloatArray:
        """``count`` uniforms on the midpoints of 2**53 cells of (0, 1)."""
        return _open_uniform(self.words(index, count))

    def normal(self, index: int, count: int) -> FloatArray:
        """``count`` independent standard normals."""
        self._seek(index)
        return self._normals(count)

    def laplace(self, index: int, count: int) -> FloatArray:
        """``count`` independent Laplace variables of scale 1."""
        words = self.words(index, count)
        signs = np.where(words & np.uint64(1), -1.0, 1.0)
        draws: FloatArray = signs * -np.log(_open_uniform(words))
        return draws

    def permutation(self, index: int, count: int) -> npt.NDArray[np.int64]:
        """A uniform permutation of ``range(count)`` (ties have probability below count**2 / 2**65)."""
        return np.argsort(self.words(index, count), kind="stable").astype(np.int64)

    def _seek(self, index: int) -> None:
        if not 0 <= index < 2**63:
            raise BadParameter(f"index={index!r} of a draw must be in [0, 2**63)")
        self._cipher.reset_nonce(index.to_bytes(8, "big") + bytes(8))

    def _next(self, count: int) -> npt.NDArray[np.uint64]:
        size = 8 * count
        if len(self._zeros) < size:
            self._zeros = memoryview(bytes(size))
        return np.frombuffer(self._cipher.update(self._zeros[:size]), dtype="<u8").astype(np.uint64, copy=False)

    def _normals(self, count: int) -> FloatArray:
        words = self._next(count)
        field = (words & _FIELD).astype(np.intp)
        unit: FloatArray = (words >> _TOP).astype(np.float64) * _TO_UNIT
        values: FloatArray = unit * _SIGNED_X[field]
        doubtful = np.flatnonzero(unit >= _RATIO_BY_FIELD[field])
        if doubtful.size:
            self._settle(values, doubtful, field[doubtful])
        return values

    def _settle(self, values: FloatArray, doubtful: npt.NDArray[np.intp], field: npt.NDArray[np.intp]) -> None:
        """Finish the draws that left the rectangles: wedge tests, redraws, and the tail."""
        layer = field & (_LAYERS - 1)
        in_tail = layer == 0
        tail, wedge, edge = doubtful[in_tail], doubtful[~in_tail], layer[~in_tail]
        height = _open_uniform(self._next(wedge.size))
        bar = _DENSITY[edge] + height * (_DENSITY[edge + 1] - _DENSITY[edge])
        redraw = wedge[bar >= np.exp(-0.5 * values[wedge] ** 2)]
        if redraw.size:
            values[redraw] = self._normals(redraw.size)
        signs = np.where(field[in_tail] >= _LAYERS, -1.0, 1.0)
        while tail.size:
            x = -np.log(_open_uniform(self._next(tail.size))) / _R
            y = -np.log(_open_uniform(self._next(tail.size)))
            done = 2.0 * y > x * x
            values[tail[done]] = signs[done] * (_R + x[done])
            tail, signs = tail[~done], signs[~done]


def _open_uniform(words: npt.NDArray[np.uint64]) -> FloatArray:
    uniforms: FloatArray = ((words >> _TOP).astype(np.float64) + 0.5) * _TO_UNIT
    return uniforms
