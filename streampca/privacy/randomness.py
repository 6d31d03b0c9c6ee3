"""Noise as a pure function of a key and a label.

`Randomness` holds a 256-bit key: fresh from the operating system by default,
derived from a seed for tests and scenarios. `Randomness.stream` derives an
independent `NoiseStream` for each label, and each index of a stream names one
draw: the same key, label and index give the same numbers, whenever and in
whatever order they are asked for. So a replay needs no stored generator
state, and no two labels ever share noise.

Words come from AES-256 in counter mode (the high half of the counter is the
index, the low half counts blocks), and become normals by a 4096-layer ziggurat
of our own (Marsaglia and Tsang 2000 in the form of Doornik 2005), so neither
depends on the version of another library's generator.
"""

from __future__ import annotations

import math
import secrets
import struct
import sys
from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from streampca.errors import BadParameter
from streampca.linalg.fast import compiled
from streampca.linalg.types import FloatArray

KEY_BYTES = 32
#: Changes whenever the numbers drawn for a given key, label and index change.
VERSION = 1

_LAYERS = 4096
_FIELD_BITS = 13  # a layer and a sign
_UNIT_BITS = 64 - _FIELD_BITS
_TO_UNIT = 2.0**-_UNIT_BITS
# Where the tail begins and the area of each layer: with them the last layer closes at the peak.
_R = 4.385945034871305
_AREA = 0.0003061541032784638


def _ziggurat() -> tuple[list[float], list[float]]:
    """Right edges of the layers, and the density at them."""
    edges, density = [0.0] * (_LAYERS + 1), math.exp(-0.5 * _R * _R)
    edges[0], edges[1] = _AREA / density, _R
    for i in range(2, _LAYERS):
        edges[i] = math.sqrt(-2.0 * math.log(_AREA / edges[i - 1] + density))
        density = math.exp(-0.5 * edges[i] * edges[i])
    return edges, [math.exp(-0.5 * x * x) for x in edges]


_EDGES, _HEIGHTS = _ziggurat()
# By field, sign included: what multiplies the integer, and the integers inside the layer's rectangle.
_SCALE = np.array([sign * x * _TO_UNIT for sign in (1.0, -1.0) for x in _EDGES[:-1]])
_INSIDE = np.array([int(b / a * 2**_UNIT_BITS) for a, b in pairwise(_EDGES)] * 2)
_DENSITY = np.array(_HEIGHTS)
_FIELD = 2**_FIELD_BITS - 1
_FEW_WORDS = 16
_FEW = struct.Struct(f"<{_FEW_WORDS}Q")
_FEW_ZEROS = bytes(_FEW.size)
_EIGHT = bytes(8)
_SWAP = sys.byteorder == "big"
_PIECE = 8192  # long draws are made in pieces that fit the cache


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
        self._room = bytearray(0)
        self._latest = np.empty(0, dtype=np.uint64)  # a view of it
        self._outside = np.empty(0, dtype=np.int64)
        self._compiled = compiled()
        self._index = self._place = 0  # of the draw under way, and of its next word

    def words(self, index: int, count: int) -> npt.NDArray[np.uint64]:
        """``count`` independent uniform 64-bit words."""
        self._seek(index)
        return self._next(count).copy()

    def uniform(self, index: int, count: int) -> FloatArray:
        """``count`` uniforms on the midpoints of 2**53 cells of (0, 1)."""
        return _open_uniform(self.words(index, count))

    def normal(self, index: int, count: int, out: FloatArray | None = None) -> FloatArray:
        """``count`` independent standard normals, in ``out``, (count,) and contiguous, if it is given."""
        self._seek(index)
        drawn = np.empty(count) if out is None else out
        for start in range(0, count, _PIECE):
            self._normals(drawn[start : start + _PIECE])
        return drawn

    def laplace(self, index: int, count: int) -> FloatArray:
        """``count`` independent Laplace variables of scale 1."""
        words = self.words(index, count)
        signs = np.where(words & np.uint64(1), -1.0, 1.0)
        draws: FloatArray = signs * -np.log(_open_uniform(words))
        return draws

    def permutation(self, index: int, count: int) -> npt.NDArray[np.int64]:
        """A uniform permutation of ``range(count)`` (ties have probability below count**2 / 2**65)."""
        return np.argsort(self.words(index, count), kind="stable").astype(np.int64)

    def _seek(self, index: int, place: int = 0) -> None:
        """Go to a draw, and to the word of this number in it."""
        if not 0 <= index < 2**63:
            raise BadParameter(f"index={index!r} of a draw must be in [0, 2**63)")
        self._cipher.reset_nonce(index.to_bytes(8, "big") + (place // 2).to_bytes(8, "big"))
        if place % 2:  # two words a block
            self._cipher.update(_EIGHT)
        self._index, self._place = index, place

    def _next(self, count: int) -> npt.NDArray[np.uint64]:
        """The next words, in a buffer that the next draw overwrites."""
        size = 8 * count
        if len(self._zeros) < size:
            self._zeros = memoryview(bytes(size))
            self._room = bytearray(size + 16)  # the cipher asks for a block more than it writes
            self._latest = np.frombuffer(self._room, dtype=np.uint64, count=count)
        self._cipher.update_into(self._zeros[:size], self._room)
        self._place += count
        words = self._latest[:count]
        if _SWAP:
            words.byteswap(inplace=True)
        return words

    def _normals(self, values: FloatArray) -> None:
        words = self._next(values.size)
        if self._compiled is not None:
            if self._outside.size < words.size:
                self._outside = np.empty(words.size, dtype=np.int64)
            outside = self._outside[: self._compiled.ziggurat(words, _SCALE, _INSIDE, values, self._outside)]
            if not outside.size or self._settled_together(words, outside, values):
                return
            fields = (words[outside] & np.uint64(_FIELD)).view(np.int64)
        else:
            field = words.view(np.int64) & _FIELD
            integer = (words >> _FIELD_BITS).view(np.int64)
            np.multiply(integer, _SCALE.take(field, mode="wrap"), out=values)  # the quickest mode
            outside = (integer >= _INSIDE.take(field, mode="wrap")).nonzero()[0]
            if not outside.size:
                return
            fields = field[outside]
        more = self._one_by_one()
        for i, its_field, value in zip(outside.tolist(), fields.tolist(), values[outside].tolist(), strict=True):
            values[i] = _settled(its_field, value, more)

    def _settled_together(
        self, words: npt.NDArray[np.uint64], outside: npt.NDArray[np.int64], values: FloatArray
    ) -> bool:
        """Finish draws by the compiled kernel; False, with nothing changed, if it takes more words than usual."""
        assert self._compiled is not None
        count = _FEW_WORDS * (1 + outside.size // 4)
        drawn = bytearray(self._cipher.update(bytes(8 * count)))
        more = np.frombuffer(drawn, dtype="<u8").astype(np.uint64, copy=False)
        used = self._compiled.settle(words, outside, more, _DENSITY, _SCALE, _INSIDE, _R, values)
        if used < 0:
            self._compiled.ziggurat(words, _SCALE, _INSIDE, values, self._outside)
            self._seek(self._index, self._place)
        elif values.size == _PIECE:  # the next piece begins where `_one_by_one` would have left off
            self._seek(self._index, self._place - -used // _FEW_WORDS * _FEW_WORDS)
        return bool(used >= 0)

    def word(self) -> int:
        """The next word after those of the latest draw, as an integer."""
        return int.from_bytes(self._cipher.update(_EIGHT), "little")

    def _one_by_one(self) -> Iterator[int]:
        """The next words, drawn a few at a time."""
        while True:
            self._place += _FEW_WORDS
            yield from _FEW.unpack(self._cipher.update(_FEW_ZEROS))


def _settled(field: int, value: float, more: Iterator[int]) -> float:
    """Finish a draw that left its rectangle (one in 1300): the wedge test, a redraw, or the tail."""
    while True:
        layer = field & (_LAYERS - 1)
        if layer == 0:
            return math.copysign(_tail(more), value)
        bar = _HEIGHTS[layer] + _unit(next(more)) * (_HEIGHTS[layer + 1] - _HEIGHTS[layer])
        if bar < math.exp(-0.5 * value * value):
            return value
        word = next(more)
        field, integer = word & _FIELD, word >> _FIELD_BITS
        value = integer * float(_SCALE[field])
        if integer < _INSIDE[field]:
            return value


def _tail(more: Iterator[int]) -> float:
    """A normal given that it is above _R (Marsaglia 1964)."""
    while True:
        beyond = -math.log(_unit(next(more))) / _R
        if -2.0 * math.log(_unit(next(more))) > beyond * beyond:
            return _R + beyond


def _unit(word: int) -> float:
    return ((word >> 11) + 0.5) * 2.0**-53


def _open_uniform(words: npt.NDArray[np.uint64]) -> FloatArray:
    uniforms: FloatArray = ((words >> 11).astype(np.float64) + 0.5) * 2.0**-53
    return uniforms
