"""Releases and entries as records: every bit comes back, on a grid or not, together or alone, and damage is told."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import streampca as sp
from streampca.errors import StoreCorruptError
from streampca.linalg.lattice import onto_ball
from streampca.privacy.guarantee import Guarantee
from streampca.release.release import Release
from streampca.release.terms import Terms
from streampca.rows.admission import NO_COUNTS, Counts
from streampca.store import records
from streampca.store.config import load
from streampca.store.keys import RunKey
from streampca.store.records import decode, encode, entry_of, groups_of, record_of, release_records, releases_of
from streampca.stream.blocks import BlockGram, Entry

PROMISE = sp.PrivateFPL(n_components=1, epsilon=1.0, release_every=1, center=False).guarantee
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
@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=9))
def test_every_bit_comes_back(kinds: list[str]) -> None:
    other = Guarantee.from_dict(PROMISE.to_dict())
    made = [release(kind, t, other if t > 5 else PROMISE) for t, kind in enumerate(kinds, start=1)]
    ((last, record),) = release_records(made)
    back = releases_of(record)
    assert len(back) == len(made) == last
    for one, two in zip(made, back, strict=True):
        own = "packed own_basis own_span own_eigenvalues own_noise_std details"
        for name in ("t", "n_components", *own.split()):
            assert same(getattr(one, name), getattr(two, name)), name
        for name in ("guarantee", "row_norm", "features", "middle", "scale"):
            assert same(getattr(one.terms, name), getattr(two.terms, name)), name


def test_the_releases_of_a_record_share_their_terms() -> None:
    ranges = {"middle": np.array([1.0, 0.5, 0.0]), "scale": np.array([2.0, 1.0, 0.1])}
    terms = Terms(PROMISE, 2.0, NAMES, **ranges)
    made = [Release(t=t, n_components=1, terms=terms, packed_gram=gram("off", t)) for t in (1, 2, 3)]
    ((_, record),) = release_records(made)
    back = releases_of(record)
    assert back[0].terms is back[2].terms
    rows = np.random.default_rng(0).normal(size=(4, 3))
    assert np.array_equal(back[1].transform(rows), made[1].transform(rows))


def test_many_releases_go_into_several_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_RELEASE_BYTES", 100)
    made = [release("off", t) for t in range(1, 8)]
    found = list(release_records(made))
    assert [last for last, _ in found] == [3, 6, 7]
    assert [one.t for _, record in found for one in releases_of(record)] == list(range(1, 8))
    assert list(release_records([])) == []


def test_points_depend_on_rows_chain_value_and_key() -> None:
    key, link = RunKey("run", bytes(32), False), bytes(range(32))
    seen = [
        key.point(1, link),
        key.point(2, link),
        key.point(1, link[::-1]),
        RunKey("run", bytes(31) + b"1", False).point(1, link),
        RunKey("sun", bytes(32), False).point(1, link),
    ]
    assert len(set(seen)) == len(seen)
    assert key.point(1, link) == seen[0]
    assert all(link.hex()[:16] not in point for point in seen)


def admitted(count: int, seed: int = 0) -> np.ndarray:
    return onto_ball(np.random.default_rng(seed).normal(size=(count, 3)))


def entry(first: int, count: int, *names: int, kind: str = "rows", counts: Counts = NO_COUNTS) -> Entry:
    rows = admitted(count, first) if count else None
    fresh = tuple(bytes([name] * 16) for name in names)
    return Entry(first, count, rows, None, counts, fresh, bytes([first] * 32), None, kind)


def test_entries_come_back_in_groups_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    some = Counts((1, 0, 2, 0, 0), 3, np.array([0, 7, 1]), 2**70 + 5)
    block = BlockGram.of(admitted(4), counts=some)
    given = [
        entry(1, 2, 1, counts=some), entry(3, 1, counts=some), entry(4, 1, 2, 3), entry(5, 0, 4, kind="generation"),
        Entry(5, 4, None, block, some, (bytes([5] * 16),), bytes([8] * 32)),
        entry(9, 3, 6), entry(12, 0, kind="finish"),
    ]  # fmt: skip
    groups = list(groups_of(given))
    back = [entry_of(record_of(*group)) for group in groups]
    assert [(len(group), one.first, one.count, one.kind) for (group, _), one in zip(groups, back, strict=True)] == [
        (3, 1, 4, "rows"), (1, 5, 0, "generation"), (1, 5, 4, "rows"), (1, 9, 3, "rows"), (1, 12, 0, "finish"),
    ]  # fmt: skip
    assert [name for one in back for name in one.fresh] == [name for one in given for name in one.fresh]
    assert [one.link for one in back] == [group[-1].link for group, _ in groups]
    assert back[0].counts.plain()[2].tolist() == [0, 14, 2]
    assert back[0].counts._replace(clamped=None) == Counts((2, 0, 4, 0, 0), 6, None, 2**71 + 10)
    assert same(back[0].rows, np.concatenate([one.rows for one in given[:3]]))
    assert back[2].block is not None
    assert back[2].block.counts.squares == some.squares
    assert same(back[2].block.high, block.high)
    assert same(back[2].block.low, block.low)
    monkeypatch.setattr(records, "MOST_BYTES", 30)
    assert [len(group) for group, _ in groups_of(given)] == [1, 2, 1, 1, 1, 1]


def config(*parts: Any) -> bytes:
    """Return a configuration with an algorithm of these parts."""
    return encode({"algorithm": msgspec.msgpack.Ext(2, encode(parts))})


def of_rows(**changes: Any) -> bytes:
    """Return the record of two rows, changed."""
    return encode(decode(record_of([entry(1, 2)], np.ones((2, 3), "<i4"))) | changes)


@pytest.mark.parametrize(
    ("read", "record"),
    [
        (releases_of, encode([1])), (releases_of, encode([{"terms": None}])), (releases_of, b""),
        (releases_of, encode({"terms": [], "each": [[1, 0, 1, *[None] * 6]]})),
        (releases_of, encode({"terms": [], "each": [[1, 0]]})),
        (releases_of, encode({"terms": [{"row_norm": 1.0, "features": None, "guarantee": PROMISE.to_dict(),
                                         "warmup": float("inf")}], "each": []})),
        (entry_of, encode(None)), (entry_of, encode({"rows": 1})),
        (entry_of, of_rows(count=3)), (entry_of, of_rows(counts=[])), (entry_of, of_rows(rows=None)),
        (load, encode(3)), (load, config(3)), (load, config("PrivateFPL", 3)), (load, config("Store", {})),
        (load, config("PrivateFPL", {"n_components": 1, "epsilon": 1.0, "delta": 1e-6, "solver": "x" * 1000})),
    ],
)  # fmt: skip
def test_what_is_no_record_is_told(read: Any, record: bytes) -> None:
    with pytest.raises(StoreCorruptError, match="cannot be read") as refused:
        read(record)
    assert len(str(refused.value)) < 250
    assert entry_of(of_rows()).count == 2


def test_a_durable_run_loads_no_other_algorithms(tmp_path: Path) -> None:
    """They load the most of scipy: an interrupt while a compiled module loads is an ImportError."""
    code = f"""if True:
        import sys
        import streampca as sp

        def stream(**more):
            algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, horizon=9, release_every=1)
            return sp.Stream(algorithm, row_norm=1.0, seed=1, **more)

        stream().push([0.5, 0.5])
        with sp.Store({str(tmp_path / "run.db")!r}) as store:
            before = set(sys.modules)
            stream(store=store).push([0.5, 0.5])
            print(sorted(name for name in set(sys.modules) - before if name.startswith(("scipy", "streampca"))))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
