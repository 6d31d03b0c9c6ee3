"""Labels of configurations, where whatever differs in a field draws other noise; snapshots of states."""

import inspect
import itertools
import json
import random
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, strategies as st

import streampca as sp
from streampca.errors import BadParameterError, UsageError
from streampca.mechanisms.base import Mechanism
from streampca.rows.bounds import PrivateBounds
from streampca.state import PREFIX, State, fields_of, label_of
from streampca.store.records import decode, encode

ALGORITHMS = [
    kind
    for kind in (getattr(room, name) for room in (sp, sp.papers) for name in room.__all__)
    if inspect.isclass(kind) and issubclass(kind, (sp.Algorithm, Mechanism)) and kind is not sp.Algorithm
]
KINDS = [*ALGORITHMS, PrivateBounds]
BUDGET: dict[str, Any] = {"n_components": 1, "epsilon": 1.0, "delta": 1e-6}
RATE = ("adaptive", (1.0, 2.0), (1.0, 2.5))
VALUES: dict[str, tuple[Any, ...]] = {
    "n_components": (1, 2, None), "epsilon": (1.0, np.nextafter(1.0, 2.0)), "delta": (1e-6, 1e-7),
    "adjacency": ("zero-out", "replace"), "n_features": (None, 5),
    "discrete_noise": (False, True), "center": (False, True),
    "max_components": (3, 4), "widths": (None, (0.1,), (0.1, 0.2)), "block_rows": (None, 9),
    "method": ("auto", "blocks", "histogram", "ring"), "horizon": (None, 9),
    "batch_size": ("auto", 4, 32), "learning_rate": RATE, "release_every": (None, 1, 2), "clip": (None, 1.0),
    "sketch_size": (None, 5),
    "noise": (sp.BLT(), sp.Tree(), sp.Tree(discrete=True)),
    "publish_regret": (False, True), "solver": (sp.Exact(), sp.Smoothed(), sp.Smoothed(drift=0.5)),
    "unit": (None, sp.Person(), sp.Person(budget=2.0)), "window": (9, 10), "eta": (0.25, 0.5),
    "checkpoint_every": (None, 2), "overhang": (0.125, 0.25), "failure_rate": (0.01, 0.02),
    "keep_short": (False, True), "mu": (1.0, 2.0), "warmup": (None, 5),
    "mechanism": (
        sp.GaussianCovariance(**BUDGET, center=False), sp.GaussianCovariance(**BUDGET, center=True),
        sp.papers.WishartCovariance(**BUDGET),
    ),
}  # fmt: skip
#: Defaults of each class. A changed one would hand its noise to another configuration.
DEFAULTS = {
    "AdaptiveCovariance": "delta=1e-06, adjacency='zero-out', center=None",
    "AdaptiveLaplaceCovariance": "adjacency='zero-out', center=None",
    "ApproximateSubspace": "n_components=None, delta=1e-06, adjacency='zero-out', "
    "max_components=3, block_rows=None, widths=None",
    "DPPCA": "delta=1e-06, batch_size='auto', learning_rate='adaptive', adjacency='zero-out'",
    "DoublingFPL": "delta=1e-06, release_every=100, adjacency='zero-out'",
    "ExactSubspace": "n_components=None, delta=1e-06, adjacency='zero-out', max_components=3, block_rows=None",
    "GaussianCovariance": "delta=1e-06, adjacency='zero-out', discrete_noise=False, center=None, unit=None",
    "LaplaceCovariance": "adjacency='zero-out'",
    "MatrixLaplaceCovariance": "adjacency='zero-out'",
    "Oja": "learning_rate='adaptive', batch_size=32, release_every=None",
    "PerturbedLeader": "delta=1e-06, release_every=100, center=None",
    "PrivateBounds": "warmup=None, horizon=None",
    "PrivateFPL": "delta=1e-06, horizon=None, noise=BLT(), release_every=100, "
    "adjacency='zero-out', publish_regret=False, solver=Exact(), center=None, unit=None",
    "PrivateOja": "delta=1e-06, horizon=None, batch_size='auto', "
    "learning_rate='adaptive', clip=None, adjacency='zero-out', release_every=None, unit=None",
    "PrivateSketch": "delta=1e-06, horizon=None, release_every=None, sketch_size=None, clip=None, "
    "adjacency='zero-out', center=None",
    "SlidingWindowPCA": "delta=1e-06, eta=0.25, method='auto', adjacency='zero-out', "
    "release_every=None, checkpoint_every=None, overhang=0.125, failure_rate=0.01, center=None, unit=None",
    "SubspacePerturbation": "delta=1e-06, adjacency='zero-out'",
    "Tumbling": "horizon=None, keep_short=False",
    "WishartCovariance": "delta=1e-06, adjacency='zero-out'",
}


def defaults(kind: type[Any]) -> dict[str, Any]:
    return {field.name: field.default for field in fields(kind) if field.init and field.default is not MISSING}


def unchecked(kind: type[Any], given: dict[str, Any]) -> Any:
    made = object.__new__(kind)
    for name, value in given.items():
        object.__setattr__(made, name, value)
    return made


def rebuilt(kind: type[Any], label: str) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return tuple(plain(inner) for inner in value)
        if isinstance(value, dict) and set(value) == {"float"}:
            return float.fromhex(value["float"])
        if isinstance(value, dict):
            nested = getattr(sp.papers if value["kind"] in sp.papers.__all__ else sp, value["kind"])
            return nested(**{name: plain(inner) for name, inner in value.items() if name != "kind"})
        return value

    prefix, _, text = label.partition(" ")
    read = json.loads(text)
    assert prefix == PREFIX
    assert read.pop("kind") == kind.__name__
    return defaults(kind) | {name: plain(value) for name, value in read.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1500, pytest.param(None, marks=pytest.mark.long)])
def test_labels_are_distinct_over_the_product_of_all_fields(kind: type[Any], count: int | None) -> None:
    names = [field.name for field in fields(kind) if field.init]
    assert "kind" not in names
    assert set(names) <= set(VALUES), "a field without values here"
    product = itertools.product(*(VALUES[name] for name in names))
    if count is not None:
        draw = random.Random(0)
        base = tuple(VALUES[name][0] for name in names)
        # Each pair of fields at all of their values, and a sample of the rest.
        pairs = {
            (*base[:i], a, *base[i + 1 : j], b, *base[j + 1 :])
            for i, j in itertools.combinations(range(len(names)), 2)
            for a, b in itertools.product(VALUES[names[i]], VALUES[names[j]])
        }
        sample = {tuple(draw.choice(VALUES[name]) for name in names) for _ in range(count)}
        product = iter(pairs | sample)
    seen = set()
    for number, values in enumerate(product, 1):
        given = dict(zip(names, values, strict=True))
        label = label_of(unchecked(kind, given))
        seen.add(blake2b(label.encode(), digest_size=16).digest())
        assert len(seen) == number, given
        if number % 100 == 1:
            assert rebuilt(kind, label) == given


def test_the_defaults_are_pinned() -> None:
    found = {kind.__name__: ", ".join(f"{name}={value!r}" for name, value in defaults(kind).items()) for kind in KINDS}
    assert found == DEFAULTS


def test_a_label_is_canonical_json() -> None:
    tumbling = sp.Tumbling(sp.GaussianCovariance(**BUDGET | {"delta": 1e-7}, center=True), release_every=3)
    assert label_of(tumbling) == (
        'streampca/label/3 {"kind":"Tumbling","mechanism":{"center":true,"delta":{"float":"0x1.ad7f29abcaf48p-24"},'
        '"epsilon":{"float":"0x1.0000000000000p+0"},"kind":"GaussianCovariance","n_components":1},"release_every":3}'
    )


def test_a_label_depends_on_neither_repr_nor_order() -> None:
    def failing(self: Any) -> str:
        raise AssertionError("a label reads no repr")

    one = make_dataclass("Some", [("a", int), ("b", float, field(default=1.0, repr=False))], frozen=True)
    other = make_dataclass(
        "Some", [("b", float, 1.0), ("a", int, field(default=0, kw_only=True))], namespace={"__repr__": failing}
    )
    assert label_of(one(1, 2.0)) == label_of(other(a=1, b=2.0)) != label_of(one(1, 3.0))
    assert fields_of(other(a=1)) == {"a": 1, "b": 1.0}


def test_values_of_other_types_have_other_labels() -> None:
    @dataclass(frozen=True)
    class Some:
        value: Any

    values = [None, 0, False, True, 1, 0.0, -0.0, 1.0, "", "1", (1.0).hex(), "0x1p", (), ("1",), (1,), ((1,),), (None,),
              Some(1), Some(Some(1)), float("inf"), float("nan"), "inf", "null", "é", "\x00"]  # fmt: skip
    assert len({label_of(Some(value)) for value in values}) == len(values)
    assert label_of(Some(np.float64(2.5))) == label_of(Some(2.5))
    assert label_of(Some(np.int64(2))) == label_of(Some(2))
    for bad in (np.zeros(2), {"a": 1}, Some, b"", 1j):
        with pytest.raises(BadParameterError, match="expected a dataclass"):
            label_of(Some(bad))


class Sum(State):
    __slots__ = ("count", "grown", "key", "square", "total")
    kept = __slots__

    def __init__(self, count: int, total: int, key: bytes, square: Any, grown: Any) -> None:
        self.count, self.total, self.key, self.square, self.grown = count, total, key, square, grown


class Pair(NamedTuple):
    first: float
    second: Any


class Run(State):
    kept = ("pair", "part", "places")

    def __init__(self, name: str, part: Sum, pair: Pair, places: tuple[Any, ...] = ()) -> None:
        self.name, self.part, self.pair, self.places = name, part, pair, places


class Longer(Run):
    kept = ("more",)
    more: Any = None


def begun() -> Longer:
    return Longer("run", Sum(0, 0, b"", np.zeros((2, 3), order="F"), np.zeros((0, 2))), Pair(0.0, np.zeros(1)))


@given(st.integers(-(2**120), 2**120), st.binary(max_size=9), st.integers(0, 5))
def test_a_state_is_restored_from_what_it_keeps(total: int, key: bytes, rows: int) -> None:
    made = begun()
    made.part = Sum(rows, total, key, np.asfortranarray(np.full((2, 3), 0.1)), np.full((rows, 2), 0.3))
    made.pair, made.more = Pair(1.5, np.full(1, 2.5)), 7
    made.places = tuple(range(rows))
    stored = decode(encode(made.snapshot()))
    assert "name" not in stored
    again = begun().restored(stored)
    assert again.name == "run"
    assert (again.part.total, again.part.key, again.part.count, again.more) == (total, key, rows, 7)
    assert again.part.square.flags.f_contiguous
    np.testing.assert_array_equal(again.part.square, made.part.square)
    np.testing.assert_array_equal(again.part.grown, made.part.grown)
    assert again.pair.first == 1.5
    assert again.places == made.places
    assert encode(again.snapshot()) == encode(made.snapshot())
    assert begun().part.total == 0  # the value that it was restored from stays as it was


@pytest.mark.parametrize(
    "change",
    [
        {"square": np.zeros((3, 2))}, {"square": np.zeros((2, 3), dtype=np.int64)}, {"square": np.zeros(6)},
        {"grown": np.zeros((4, 3))}, {"unknown": 1}, {"total": None},
    ],
)  # fmt: skip
def test_a_snapshot_of_other_parameters_is_refused(change: dict[str, Any]) -> None:
    stored = begun().snapshot()
    stored["part"] |= change
    if "total" in change:
        del stored["part"]["total"]
    with pytest.raises(UsageError, match="Restore with the parameters"):
        begun().restored(stored)
