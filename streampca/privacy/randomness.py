"""Noise as a function of secret keys and 16 bytes.

The noise of releases comes from an outlet (`streampca.privacy.outlet`), which derives 16 secret bytes s for every
vector of noise from the 256-bit master key K of `Randomness`. Block i of the vector is AES-256(K', s xor i), K' derived
from K: a pure function of keys and s (`Draws`).

A *word* is a random 64-bit integer. Words become normals by a 4096-layer ziggurat (Marsaglia and Tsang 2000 in the form
of Doornik 2005). A coordinate that needs more than its first word draws more under a second key, addressed by
coordinate and attempt, so no coordinate depends on another one and the number of attempts is not limited.
"""

from __future__ import annotations

import copy
import math
import os
import secrets
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import count as count_up, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from streampca import _native
from streampca.errors import BadParameterError
from streampca.linalg.types import FloatArray

KEY_BYTES = 32
#: Bytes that name one vector of noise.
NAME_BYTES = 16
#: Changes whenever the numbers drawn for given keys and names change.
VERSION = 2

Words = npt.NDArray[np.uint64]

_LAYERS = 4096
_FIELD_BITS = 13  # a layer and a sign
_UNIT_BITS = 64 - _FIELD_BITS
# Start of the tail and area of each layer: with them the last layer closes at the peak.
_R = 4.385945034871305
_AREA = 0.0003061541032784638
_CHUNK = 8192  # long draws are computed in chunks that fit the cache
_BITS = np.uint64(_FIELD_BITS)
_WORD = np.dtype(np.uint64)
if sys.byteorder != "little":
    raise ImportError("streampca needs a little-endian machine: its noise is defined byte by byte")
_PAIR = struct.Struct("<QQ")


# Computed, not stored: every layer has one area, and the bits of the tables are part of VERSION.
def _ziggurat() -> tuple[list[float], list[float]]:
    """Return the right edges of the layers, and the density at them."""
    edges, density = [0.0] * (_LAYERS + 1), math.exp(-0.5 * _R * _R)
    edges[0], edges[1] = _AREA / density, _R
    for i in range(2, _LAYERS):
        edges[i] = math.sqrt(-2.0 * math.log(_AREA / edges[i - 1] + density))
        density = math.exp(-0.5 * edges[i] * edges[i])
    return edges, [math.exp(-0.5 * x * x) for x in edges]


_EDGES, _HEIGHTS = _ziggurat()
# By field, sign included: the factor of the integer, and the integers inside the layer's rectangle.
_SCALE = np.array([sign * x * 2.0**-_UNIT_BITS for sign in (1.0, -1.0) for x in _EDGES[:-1]])
_INSIDE = np.array([int(b / a * 2**_UNIT_BITS) for a, b in pairwise(_EDGES)] * 2)
#: Tables for compiled kernels: scales and bars of the rectangles, densities, and the start of the tail.
ZIGGURAT = _SCALE, _INSIDE, np.array(_HEIGHTS), _R
_FIELD = 2**_FIELD_BITS - 1


def encoded(*parts: object) -> bytes:
    """Return the bytes of a label; different labels never have equal bytes.

    A label consists of strings, integers, floats (their 64 bits), bytes, None, and tuples of them.
    """
    out = []  # each part is preceded by its type and length
    for part in parts:
        if part is None:
            kind, text = b"n", b""
        elif isinstance(part, (bool, int, np.integer)):
            kind, text = b"i", str(int(part)).encode()
        elif isinstance(part, (float, np.floating)):
            kind, text = b"f", struct.pack("<d", part)
        elif isinstance(part, str):
            kind, text = b"s", part.encode()
        elif isinstance(part, bytes):
            kind, text = b"b", part
        elif isinstance(part, tuple):
            kind, text = b"t", encoded(*part)
        else:
            raise BadParameterError("label", part, "strings, numbers, bytes and tuples of them")
        out.append(kind + len(text).to_bytes(8, "little") + text)
    return b"".join(out)


class Randomness:
    """A master key, secret or derived from a seed.

    Parameters
    ----------
    key : 32 secret bytes; None draws them from `secrets`. A reader of the key can subtract the noise of its runs: it is
        as secret as the rows. It does not reproduce a run: noise also depends on 16 fresh bytes from the system.
    """

    def __init__(self, key: bytes | None = None) -> None:
        #: The tape that was recording at its creation; None except in an audit.
        self.tape: Tape | None = _RECORDING.get()
        if key is None:
            key = secrets.token_bytes(KEY_BYTES) if self.tape is None else self.tape.random(KEY_BYTES)
        if not (isinstance(key, bytes) and len(key) == KEY_BYTES):
            raise BadParameterError("key", ..., f"{KEY_BYTES} bytes, or None for a fresh one from the system")
        self.key = key
        self.is_seeded = False  #: True if created by `from_seed`: no bytes are fresh then

    @classmethod
    def from_seed(cls, seed: int) -> Randomness:
        """Return reproducible randomness for tests and scenarios; marks guarantees as seeded."""
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            raise BadParameterError("seed", seed, "an integer, or None for noise from the system")
        # A digest, because a key has 32 bytes, and seeds are small numbers that differ in few digits.
        seeded = cls(blake2b(str(int(seed)).encode(), digest_size=KEY_BYTES, person=b"streampca seed").digest())
        seeded.is_seeded = True
        return seeded

    def derived(self, *label: object) -> bytes:
        """Return 32 secret bytes that depend on the key and a label, independent of every other label's."""
        return blake2b(encoded(VERSION, *label), key=self.key, digest_size=KEY_BYTES, person=b"streampca key").digest()

    def stream(self, *label: str | int) -> NoiseStream:
        """Return numbers for simulations and tests, named by a label and an index. Never noise that hides rows."""
        return NoiseStream(DrawKeys(self.derived("stream", *label)))

    def __repr__(self) -> str:
        return f"Randomness({'seeded' if self.is_seeded else 'secret'})"


class DrawKeys:
    """The two AES-256 keys under which vectors of noise are drawn, both derived from 32 bytes."""

    def __init__(self, key: bytes) -> None:
        # ECB is right here: blocks are inputs of a pseudorandom function, not messages.
        self.first, self.more = (
            Cipher(algorithms.AES256(one), modes.ECB()).encryptor().update  # noqa: S305
            for one in (
                blake2b(key, digest_size=KEY_BYTES, person=person).digest()
                for person in (b"streampca words", b"streampca more")
            )
        )


@dataclass(eq=False, repr=False, slots=True)
class Draws:
    """One vector of independent random numbers: a pure function of the keys and of 16 secret bytes.

    All methods but `more` begin with the same words: call one of them, once, for each object. The number ``n`` of the
    vector is public; its 16 bytes, ``name``, are as secret as the keys.
    """

    keys: DrawKeys
    n: int
    name: bytes

    def words(self, count: int, first_block: int = 0) -> Words:
        """Return ``count`` independent uniform 64-bit words, from this block on (two words a block)."""
        blocks = (count + 1) // 2
        text = np.frombuffer(self.name * blocks, _WORD) ^ _counter(first_block, blocks)
        return np.frombuffer(self.keys.first(text.tobytes()), _WORD, count)

    def more(self, coordinate: int) -> Iterator[int]:
        """Yield further words for one coordinate without end, two for each attempt."""
        # The blocks of two coordinates differ in their first half, so that no coordinate depends on the number of words
        # that another one needs.
        encrypt = self.keys.more
        low, high = _PAIR.unpack(self.name)
        for attempt in count_up():
            yield from _PAIR.unpack(encrypt(_PAIR.pack(low ^ coordinate, high ^ attempt)))

    def uniform(self, count: int) -> FloatArray:
        """Return ``count`` uniforms on the midpoints of 2**53 cells of (0, 1)."""
        return _open_uniform(self.words(count))

    def laplace(self, count: int) -> FloatArray:
        """Return ``count`` independent Laplace variables of scale 1.

        Logarithms of the 2**53 numbers of `uniform`, so they end at 37.4. On the grid of `lattice.coarsen`, each cell's
        probability is off by up to 2**-54: pure epsilon holds up to the delta of `guarantee.laplace_delta`.
        """
        # The last bit is the sign. It is not among the 53 leading bits, which make the magnitude.
        words = self.words(count)
        signs = np.where(words & np.uint64(1), -1.0, 1.0)
        return signs * -np.log(_open_uniform(words))

    def normal(self, count: int) -> FloatArray:
        """Return ``count`` independent standard normals."""
        values = np.empty(count)
        if (kernels := _native.compiled) is not None:
            kernels.normals(self.keys.first, self.keys.more, self.name, *ZIGGURAT, values)
            return values
        for start in range(0, count, _CHUNK):
            part = values[start : start + _CHUNK]
            words = self.words(part.size, start // 2)
            field, integer = (words & np.uint64(_FIELD)).view(np.int64), (words >> _BITS).view(np.int64)
            np.multiply(integer, _SCALE.take(field), out=part)
            # Normals outside their rectangles, one in 830, need further words.
            for i in (integer >= _INSIDE.take(field)).nonzero()[0].tolist():
                part[i] = _finished(int(words[i]) & _FIELD, float(part[i]), self.more(start + i))
        return values


class Note(NamedTuple):
    """One vector of noise on a tape. As secret as the rows."""

    kind: str  # name of the hidden values
    draws: Draws
    exact: Any = None  # as passed to the outlet; None for coins and permutations
    noise: Any = None  # in the outlet's coordinates
    value: Any = None  # as released
    std: float = 0.0  # as passed to the outlet, or 0


@dataclass(eq=False, repr=False)
class Tape:
    """A record of everything that the outlets of a run hide and release, for an audit.

    A key created while a tape records (`recording`) refers to it, and so do all streams, threads, copies and resumed
    runs that draw from the key. ``notes`` has one note a vector of noise, in order.

    With the tape of another run, ``forced``, keys, starts, fresh bytes and random numbers are those of that run, and
    outlets return its values; the exact values of this run are still recorded. ``seed`` makes keys and fresh bytes
    reproducible; None draws them from the system.
    """

    forced: Tape | None = None
    seed: bytes | None = None
    notes: list[Note] = field(default_factory=list)
    entropy: list[bytes] = field(default_factory=list)
    starts: list[bytes] = field(default_factory=list)
    _first_places: dict[bytes, int] = field(default_factory=dict)  # of each start that was given

    @contextmanager
    def recording(self) -> Iterator[Tape]:
        """Record the runs of all keys created in the ``with`` block."""
        # The tape of before, if there is one, records again afterwards: blocks may be nested.
        token = _RECORDING.set(self)
        try:
            yield self
        finally:
            _RECORDING.reset(token)

    def random(self, count: int) -> bytes:
        """Return the bytes that replace fresh ones from the system."""
        place = len(self.entropy)
        if self.forced is not None:
            value = self.forced.entropy[place] if place < len(self.forced.entropy) else b""
            if len(value) != count:  # the other run drew fewer bytes, or others
                value = bytes(count)
        elif self.seed is None:
            value = os.urandom(count)
        else:
            value = blake2b(place.to_bytes(8, "little"), key=self.seed, digest_size=count).digest()
        self.entropy.append(value)
        return value

    def start(self, given: bytes) -> bytes:
        """Return the bytes that replace 16 of a start: equal for equal ones; those of the other run if forced."""
        place = len(self.starts)
        if self.forced is not None and place < len(self.forced.starts):
            value = self.forced.starts[place]
        elif self.seed is None or given in self.starts:  # a resumed run has the start that it was given before
            value = given
        else:
            first = self._first_places.setdefault(given, place).to_bytes(8, "little")
            value = blake2b(first, key=self.seed, digest_size=NAME_BYTES, salt=b"start").digest()
        self.starts.append(value)
        return value

    def drawn(self, kind: str, draws: Draws) -> Draws:
        """Record a vector before its noise is computed; return it, or that of the other run."""
        same = self._same(kind, len(self.notes))
        draws = draws if same is None else same.draws
        self.notes.append(Note(kind, draws))
        return draws

    def released(self, draws: Draws, exact: Any, noise: Any, value: Any, std: float) -> Any:
        """Record the value released with a vector; return it, or the value that the other run released."""
        # From the end: the vector is nearly always the latest one.
        place = next(i for i in reversed(range(len(self.notes))) if self.notes[i].draws is draws)
        kind = self.notes[place].kind
        self.notes[place] = Note(kind, draws, exact, noise, copy.deepcopy(value), std)
        same = self._same(kind, place)
        if same is None or same.exact is None:
            return value
        if hasattr(exact, "given"):
            return exact.given(same.exact, same.value)
        return copy.deepcopy(same.value)

    def _same(self, kind: str, place: int) -> Note | None:
        """Return the note of the other run at this place, if it is of this kind."""
        notes = () if self.forced is None else self.forced.notes
        return notes[place] if place < len(notes) and notes[place].kind == kind else None

    def __reduce__(self) -> Any:
        return recording_tape, ()  # copies of a run use the tape that records when they are created


_RECORDING: ContextVar[Tape | None] = ContextVar("tape", default=None)


def recording_tape() -> Tape | None:
    """Return the tape that is recording, if any."""
    return _RECORDING.get()


@dataclass(eq=False, repr=False)
class NoiseStream:
    """Random numbers for simulations and tests, as those of `Draws`: equal indices give equal numbers."""

    _keys: DrawKeys

    def draws(self, index: int) -> Draws:
        """Return the numbers of an index."""
        return Draws(self._keys, index, _PAIR.pack(index, 0))

    def normal(self, index: int, count: int) -> FloatArray:
        """Return standard normals."""
        return self.draws(index).normal(count)


@lru_cache(maxsize=64)
def _counter(first: int, blocks: int) -> Words:
    """Return block numbers as pairs of words (0, i), (2 * blocks,)."""
    numbers = np.zeros((blocks, 2), _WORD)
    numbers[:, 1] = np.arange(first, first + blocks, dtype=np.uint64)
    numbers.flags.writeable = False
    return numbers.reshape(-1)


def _finished(field: int, value: float, more: Iterator[int]) -> float:
    """Finish a normal outside its rectangle (one in 830): the wedge test, a redraw, or the tail."""
    while True:
        layer = field & (_LAYERS - 1)
        if layer == 0:
            break
        # Uniform between the densities at both edges: below the curve, the number is kept.
        bar = _HEIGHTS[layer] + _unit(next(more)) * (_HEIGHTS[layer + 1] - _HEIGHTS[layer])
        if bar < math.exp(-0.5 * value * value):
            return value
        word = next(more)
        field, integer = word & _FIELD, word >> _FIELD_BITS
        value = integer * float(_SCALE[field])
        if integer < _INSIDE[field]:
            return value
    while True:  # a normal above _R (Marsaglia 1964), with the sign of the draw
        beyond = -math.log(_unit(next(more))) / _R
        if -2.0 * math.log(_unit(next(more))) > beyond * beyond:
            return math.copysign(_R + beyond, value)


def _unit(word: int) -> float:
    return ((word >> 11) + 0.5) * 2.0**-53


def _open_uniform(words: Words) -> FloatArray:
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
