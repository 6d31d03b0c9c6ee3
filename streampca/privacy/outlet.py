"""The only place where exact values meet noise.

Each vector of noise is fresh, and bound to the values that it hides. With n the number of a vector, x_n the exact
values and rho_n 16 fresh bytes from the system,

    c_n || s_n = BLAKE2b(K1; c_(n-1), kind, n, rho_n, GHASH(K2; x_n))

with lengths in front, and the vector is drawn from s_n (`randomness.Draws`). The chain value c_n is the state of the
run. All keys are derived from the master key and a label that holds every public parameter of the run, every constant
of the noise and 16 bytes of the start.

*One run.* The number n makes every input of the pseudorandom function new, so the noise is independent of everything
released before, whatever the hash does.

*Two continuations of one run* (a fork, a copy, a restored store, another run under one key) have different fresh bytes,
so their noise is independent: they cost as much as two runs. Where the fresh bytes are equal too (a seed, a cloned
virtual machine), different rows still give independent noise, by the hash; equal noise reveals from where they differ.

*Replay.* The fresh bytes are stored with their rows, and passed as ``recorded``: the same rows then give the same bits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from streampca.errors import UsageError
from streampca.linalg.lattice import coarsen
from streampca.linalg.types import FloatArray, IntArray
from streampca.privacy.randomness import NAME_BYTES, VERSION, DrawKeys, Draws, Randomness, encoded

#: Changes whenever the noise of a run changes for the same key, label, rows and fresh bytes.
SCHEME = 1

_LINK_BYTES = 32
_NONCE = bytes(12)
EPOCH_BITS = 16
_HASH = b"streampca chain"

#: Makes a named tuple without a Python call.
_new = tuple.__new__

Value = TypeVar("Value", covariant=True)
Noise = TypeVar("Noise", bound="RunningNoise")


class Chain(NamedTuple):
    """Number of vectors of noise drawn so far, and the chain value after them. As secret as the key."""

    n: int
    link: bytes


class Exact(Protocol[Value]):
    """Exact values that an outlet can hide, and add noise to."""

    @property
    def hidden(self) -> Sequence[Any]:
        """The exact values as arrays or bytes, with equal bytes for equal values."""

    def noisy(self, noise: FloatArray, std: float) -> Value:
        """Add noise of this standard deviation, and round so that the low digits hold no information."""


class RunningNoise(Protocol):
    """Correlated noise after some sums: an immutable value (`streampca.matrix_factorization.base`)."""

    noise: FloatArray  # of the latest sum

    def advance(self: Noise, draws: Draws) -> Noise:
        """Return the noise after one sum more, with its fresh vector."""


class LatticeSum:
    """Exact values, multiples of ``grid``, a power of two."""

    __slots__ = ("grid", "hidden", "values")

    def __init__(self, values: FloatArray, grid: float) -> None:
        self.values, self.grid = values, grid
        # Equal values have equal bytes: one memory order, and no minus zero.
        self.hidden = (np.ascontiguousarray(values + 0.0),)

    def noisy(self, noise: FloatArray, std: float) -> FloatArray:
        """Add noise rounded to the lattice, which is exact, then round by `lattice.coarsen`."""
        drawn = np.rint(noise.reshape(self.values.shape) * (1.0 / self.grid)) * self.grid
        return coarsen(self.values + drawn, std)


class NoiseSource:
    """The keys of the noise of one start of one run. As secret as the rows.

    ``label`` has every public parameter: runs that differ in one of them have independent noise. ``start`` are the 16
    bytes of a run that is continued; None for fresh bytes, or with a seed a function of it.
    """

    def __init__(self, randomness: Randomness, *label: object, start: bytes | None = None) -> None:
        self.is_seeded = randomness.is_seeded
        #: The tape of an audit, and the source of fresh bytes.
        self.tape = tape = randomness.tape
        self.random = os.urandom if tape is None else tape.random
        if start is None:
            seeded = self.is_seeded
            start = randomness.derived("start", SCHEME, *label)[:NAME_BYTES] if seeded else self.random(NAME_BYTES)
        if tape is not None:
            start = tape.start(start)
        self.start = start
        # Four keys of four purposes: no output of one function is an input of another under the same key.
        full = encoded(SCHEME, VERSION, *label, start)
        link_key, hash_key, self._draw_key, self._seed_key = (
            randomness.derived("noise", purpose, full) for purpose in ("link", "hash", "draw", "fresh")
        )
        #: Keyed hash of exact values, given as bytes: GHASH under AES-256, for `link`.
        self.tag = partial(AESGCM(hash_key).encrypt, _NONCE, b"")
        self.first = Chain(0, blake2b(full, key=link_key, digest_size=_LINK_BYTES, person=_HASH).digest())
        # Keyed once: a copy takes half the time of a new hash, once a row.
        self._link_hash = blake2b(key=link_key, digest_size=_LINK_BYTES + NAME_BYTES, person=_HASH)
        #: Number of the epoch of the latest vectors, and its keys: one object, so that they belong together.
        self.epoch = (-1, DrawKeys(self._draw_key))

    def draws(self, n: int, name: bytes) -> Draws:
        """Return vector n, named by its 16 bytes: a function of both and of the keys."""
        number, epoch = n >> EPOCH_BITS, self.epoch
        if epoch[0] != number:
            key = blake2b(encoded(number), key=self._draw_key, digest_size=32, person=b"streampca epoch").digest()
            self.epoch = epoch = number, DrawKeys(key)  # one assignment: threads see number and keys that agree
        return Draws(epoch[1], n, name)

    def fresh(self, n: int) -> bytes:
        """Return the bytes that replace fresh ones for vector n in a seeded run: a function of the seed and n."""
        person = b"streampca fresh"
        return blake2b(n.to_bytes(8, "little"), key=self._seed_key, digest_size=NAME_BYTES, person=person).digest()

    def link(self, chain: Chain, kind: bytes, fresh: bytes, tags: bytes) -> tuple[Chain, bytes]:
        """Return the chain value after one vector more, and the vector's 16 bytes; ``tags`` are of its exact values."""
        n = chain.n + 1
        # One digest gives both halves: the chain value never enters a draw, nor s_n the chain.
        keyed = self._link_hash.copy()
        # Lengths or fixed sizes delimit every part: two different histories never hash the same bytes.
        keyed.update(b"%d|%d|%b|%b|%b%b" % (n, len(kind), kind, chain.link, fresh, tags))
        digest = keyed.digest()
        return _new(Chain, (n, digest[:_LINK_BYTES])), digest[_LINK_BYTES:]


def _bytes_of(part: Any) -> Any:
    """Return the bytes of an array, in the order of rows; bytes as they are."""
    if isinstance(part, (bytes, memoryview)):
        return part
    if part.size and part.flags.c_contiguous:
        return part.data.cast("B")  # this runs once a release: `view` takes twice as long
    return part.reshape(-1).view(np.uint8).data


@dataclass(eq=False, repr=False, slots=True)
class Outlet:
    """The place where exact values meet noise, for one block of rows. Used once, by one thread."""

    _source: NoiseSource
    chain: Chain  # the chain value after the vectors drawn so far
    _recorded: Sequence[bytes] | None = None  # fresh bytes of a replay
    fresh: list[bytes] = field(default_factory=list)  # of each vector drawn so far

    def hide(self, kind: str, *exact: Any) -> Draws:
        """Return the next vector of noise, fresh and bound to the exact values that it will hide.

        ``kind`` names the values, which are arrays or bytes, with equal bytes for equal values. Without values, the
        vector is for public random numbers, independent of all rows so far.
        """
        source, recorded = self._source, self._recorded
        n, kept = self.chain.n + 1, len(self.fresh)
        if recorded is None:
            fresh = source.fresh(n) if source.is_seeded else source.random(NAME_BYTES)
        elif kept < len(recorded):
            fresh = recorded[kept]
        else:
            raise UsageError(f"the recorded bytes end before vector {n}. They belong to other rows")
        # Kept before the draw: a block that is stored has the fresh bytes of every vector that met its rows.
        self.fresh.append(fresh)
        tags = b"".join([source.tag(_bytes_of(part)) for part in exact])
        self.chain, name = source.link(self.chain, kind.encode(), fresh, tags)
        if source.tape is not None:
            return source.tape.drawn(kind, source.draws(n, name))
        epoch = source.epoch
        return Draws(epoch[1], n, name) if epoch[0] == n >> EPOCH_BITS else source.draws(n, name)

    def running(self, kind: str, exact: Exact[Value], noise: Noise, std: float) -> tuple[Noise, Value]:
        """Release a running sum with noise correlated to ``noise``, that of the sums before.

        Returns the noise after this sum, which is secret, and the sum to be published. ``std`` is the standard
        deviation of the noise in this sum, for the grid of the release.
        """
        draws, tape = self.hide(kind, *exact.hidden), self._source.tape
        after = noise.advance(draws)
        value = exact.noisy(after.noise, std)
        return after, value if tape is None else tape.released(draws, exact, after.noise, value, std)

    def gaussian(self, kind: str, values: FloatArray, std: float, grid: float) -> FloatArray:
        """Release multiples of ``grid``, a power of two, with independent Gaussian noise of ``std`` in each."""
        return self.gram(kind, LatticeSum(values, grid), values.size, std)

    def gram(self, kind: str, exact: Exact[Value], size: int, std: float) -> Value:
        """Release an exact sum of ``size`` coordinates with independent Gaussian noise."""
        return self.release(kind, exact, lambda draws: std * draws.normal(size), std)

    def release(self, kind: str, exact: Exact[Value], draw: Callable[[Draws], Any], std: float = 0.0) -> Value:
        """Release exact values with noise that ``draw`` computes from the fresh vector, of ``std`` where needed."""
        draws, tape = self.hide(kind, *exact.hidden), self._source.tape
        noise = draw(draws)
        value = exact.noisy(noise, std)
        return value if tape is None else tape.released(draws, exact, noise, value, std)


class Counts:
    """Exact counts, to which noise is added without rounding.

    ``of`` are arrays or bytes of which these are the counts, hidden with them; ``names`` has the name of each count,
    where names depend on the rows.
    """

    __slots__ = ("counts", "hidden", "names")

    def __init__(self, counts: IntArray, *of: Any, names: Sequence[Hashable] | None = None) -> None:
        self.counts, self.names = counts, names
        self.hidden = (counts, *of)

    def noisy(self, noise: FloatArray, std: float) -> FloatArray:
        """Add the noise."""
        return self.counts + noise.reshape(self.counts.shape)

    def given(self, other: Counts, value: FloatArray) -> FloatArray:
        """Return the values that another run released, by name; minus infinity for names it lacks. For audits."""
        if self.names is None or other.names is None:
            return value.copy()
        released = dict(zip(other.names, value.tolist(), strict=True))
        return np.array([released.get(name, -np.inf) for name in self.names])
