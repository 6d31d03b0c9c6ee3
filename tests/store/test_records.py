"""Releases as records: every bit comes back, on a grid or not, together or alone, and damage is told."""

from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streampca as sp
from streampca.errors import StoreCorrupt
from streampca.privacy.guarantee import Guarantee
from streampca.release import Release
from streampca.store.checksums import Chain, checksum, matches
from streampca.store.codec import encode
from streampca.store.keys import RunKey
from streampca.store.records import ReleaseRecords, fields_of, release_of

PROMISE = sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, n_features=3).guarantee
NAMES = ("a", "b", "c")


def gram(kind: str, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed).normal(size=6)
    return {
        "grid": np.rint(draw * 2**24) * 2.0**-10 + 0.0,
        "edge": np.array([2.0**31 - 1, 1 - 2.0**31, 0.0, 1.0, -1.0, 5.0]),
        "beyond": np.array([2.0**31, 1.0, 0.0, 0.0, 0.0, 0.5]),
        "off": draw,
        "minus zero": np.array([1.0, -0.0, 2.0, 3.0, 4.0, 5.0]),
        "nothing": np.zeros(6),
        "tiny": np.full(6, 5e-324),
        "huge": np.full(6, 1.7e308),
        "nan": np.array([np.nan, 1.0, 2.0, np.inf, 0.0, 1.0]),
    }[kind]


def release(kind: str, t: int, guarantee: Guarantee = PROMISE) -> Release:
    own: dict[str, Any] = {"noise_std": 0.1 * t, "details": {"t": t} if t % 3 == 0 else None}
    if kind == "basis":
        return Release(t=t, n_components=1, guarantee=guarantee, basis=np.eye(3)[:, :1], eigenvalues=np.ones(1), **own)
    if kind == "span":
        own |= {"span": np.asfortranarray(np.eye(3)[:, :2])}
        kind = "off"
    return Release(
        t=t, n_components=1, guarantee=guarantee, packed_gram=gram(kind, t), row_norm=2.0 if t % 5 == 0 else 1.0,
        features=None if t % 7 == 0 else NAMES if t % 2 else ("x", "y", "z"), **own,
    )  # fmt: skip


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return bool(one == other)


KINDS = ["grid", "edge", "beyond", "off", "minus zero", "nothing", "tiny", "huge", "nan", "basis", "span"]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=9), st.sampled_from([None, NAMES]))
def test_every_bit_comes_back(kinds: list[str], features: tuple[str, ...] | None) -> None:
    other = Guarantee.from_dict(PROMISE.to_dict())
    made = [release(kind, t, other if t > 5 else PROMISE) for t, kind in enumerate(kinds, start=1)]
    back = [release_of(fields, features) for fields in fields_of(ReleaseRecords().group(made, features))]
    assert len(back) == len(made)
    for one, two in zip(made, back, strict=True):
        assert vars(one).keys() == vars(two).keys()
        for name, value in vars(one).items():
            assert same(value, getattr(two, name)), name


def test_numbers_on_a_grid_take_half_the_room() -> None:
    made = [release("grid", t) for t in (1, 11, 13)]
    other = [release("off", t) for t in (1, 11, 13)]
    for one in (*made, *other):
        assert one._packed is not None
        one._packed = np.tile(one._packed, 1000)
    records = ReleaseRecords()
    assert len(records.group(made, None)) < 0.52 * len(records.group(other, None))


@pytest.mark.parametrize("record", [encode([1]), encode([{"grams": None}]), encode(3), encode([{"each": [{}] * 2}])])
def test_what_is_no_record_of_releases_is_told(record: bytes) -> None:
    with pytest.raises(StoreCorrupt, match="cannot be read"):
        fields_of(record)


@pytest.mark.parametrize("size", [0, 1, 17, 1000])
def test_checksums(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    total = checksum("7", data)
    assert matches("7", data, total)
    assert not matches("8", data, total)
    assert not matches("7", data + b"\0", total)
    for at in range(0, size, 13):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            assert not matches("7", bytes(changed), total)
    assert not matches("7", data, total[1:])
    assert not matches("7", data, None)
    old = blake2b(data, digest_size=16, person=b"streampca record", salt=b"7").digest()
    assert matches("7", data, old)
    assert not matches("7", data + b"x", old)


def test_the_chain_depends_on_all_rows_their_order_and_the_key() -> None:
    chain = Chain(RunKey("run", bytes(32), False))
    rows = np.arange(12, dtype=np.int32).reshape(4, 3)
    changed = rows.copy()
    changed[3, 2] ^= 1
    seen = [
        chain.after("", 1, [rows]),
        chain.after("x", 1, [rows]),
        chain.after("", 2, [rows]),
        chain.after("", 1, [changed]),
        chain.after("", 1, [rows[::-1]]),
        chain.after("", 1, [rows.reshape(6, 2)]),
        chain.after("", 1, [rows[:2], rows[2:]]),
        Chain(RunKey("run", bytes(31) + b"1", False)).after("", 1, [rows]),
        Chain(RunKey("sun", bytes(32), False)).after("", 1, [rows]),
    ]
    assert len(set(seen)) == len(seen)
    assert chain.after("", 1, [np.asfortranarray(rows)]) == seen[0]
