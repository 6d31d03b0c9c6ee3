"""A kernel refuses arrays of another type, shape or place in memory, whole, and survives every number."""

import contextlib
import os
import sys

import numpy as np
import pytest

from streampca import _native

pytestmark = pytest.mark.usefixtures("compiled_kernels")


@pytest.fixture
def kernels(compiled_kernels):
    return _native.compiled


def cipher(text):
    return os.urandom(len(text))


def kernel_of(name):
    """Return a function of the kernels, or a method of a plan of d = 3 about a mean, k = 2, three buffers."""
    kernels, tables = _native.compiled, (np.full(8, 2.0**-60), np.full(8, 2**40), np.linspace(1.0, 0.0, 5), 3.5)
    if hasattr(kernels, name):
        return getattr(kernels, name)
    weights, none = np.ones(10), np.empty(0)
    return getattr(
        kernels.Plan(3, 2, np.full(3, 0.5), np.full(3, 0.5), weights, 1.0, *tables, 1, 0.5, 1.0, 1.0, none, none), name
    )


def calls():
    """Valid arguments of every kernel: d = 4, k = 2, three buffers, three rows; five records of a fleet."""
    d, k, s, c, n = 4, 2, 10, 3, 3
    rng = np.random.default_rng(0)
    rows, row = np.floor(rng.uniform(-0.4, 0.4, (n, d)) * 2**20) / 2**20, rng.uniform(-0.4, 0.4, d)
    packed, span = rng.normal(size=s), np.linalg.qr(rng.normal(size=(d, k)))[0].T.copy()
    buffers, vector = rng.normal(size=(c, s)), lambda size=s: rng.normal(size=size)
    name, inside = rng.integers(0, 256, 16).astype(np.uint8), np.full(8, 2**40)
    omega = theta = np.full(c, 0.5)
    return {
        "admit": (row, 1.0, np.empty((1, d))),
        "admit_bounded": (row, np.zeros(d), np.ones(d), np.empty((1, d))),
        "is_admitted": (rows,),
        "snap": (rows, np.empty((n, d)), np.empty(n), np.empty(n, np.int64)),
        "add_outer": (np.zeros((2, s)), rows[0], np.empty((2, s))),
        "score": (rows, np.ascontiguousarray(span.T), 0.0, np.empty(n)),
        "normals": (
            cipher, cipher, name, np.full(8, 2.0**-60), inside, np.linspace(1.0, 0.0, 5), 3.5, vector(6),
        ),
        "plus": (vector(), vector(), vector(), np.ones(s), 6144.0, 0.5, np.empty(s)),
        "buffered_step": (vector(), buffers, vector(), omega, theta, 1.0, 1.0, np.empty((c, s)), np.empty(s)),
        "filter_gain": (np.eye(c + 3), np.eye(c + 3), omega, theta, 0.1, 0.1, 1.0, 1.0, np.empty(c + 3)),
        "smoothed_sums": (
            vector(), vector(), vector(), vector(), buffers, omega, theta, np.ones(c + 3), 1.0, 1.0, np.empty((c, s)),
            np.empty((2, s)),
        ),
        "top_pairs": (packed, np.empty(k), np.empty((d, k))),
        "certified": (vector(d), vector(d), vector(k), span, 1.0),
        "power_step": (packed, span, 1.0, np.empty((k, d))),
        "ritz_pairs": (packed, span, np.empty(k), np.empty((d, k))),
        # Of a plan.
        "add": (rows, np.array([0, ~4, 0]), 0, 2, 3, 9, records := np.zeros(5 * 8 * (10 + 6 * s + 6), np.uint8)),
        "exact": (records, 4),
        "publish": (name, cipher, cipher, 1.0, 1.0, np.zeros(32, np.uint8), 7, 2.0, 1.0, 0.5, records, 4),
    }  # fmt: skip


def test_every_kernel_is_here(kernels):
    functions = {name for name in vars(kernels) if callable(getattr(kernels, name)) and not name.startswith("_")}
    assert set(calls()) | {"Plan"} == functions | {"add", "exact", "publish"}


@pytest.mark.parametrize("name", calls())
def test_arguments_that_do_not_fit_are_refused(name, kernels):
    kernel, good = kernel_of(name), calls()[name]
    kernel(*good)
    with pytest.raises(TypeError, match="number of arguments"):
        kernel(*good, 0.0)
    for at, value in enumerate(good):

        def given(other, at=at):
            return kernel(*good[:at], other, *good[at + 1 :])

        with pytest.raises((TypeError, ValueError, BufferError)):
            given("no array")
        if not isinstance(value, np.ndarray):
            continue
        kinds = [value.astype(np.float32 if value.dtype == float else np.int16), value[..., None], value.tolist()]
        strided = np.repeat(value, 2, axis=-1)[..., ::2]
        unaligned = np.frombuffer(bytearray(value.nbytes + 1), np.uint8)[1:].view(value.dtype).reshape(value.shape)
        for other in (*kinds, strided, unaligned):
            with pytest.raises((TypeError, ValueError, BufferError)):
                given(other)


@pytest.mark.parametrize("name", calls())
def test_results_are_references_of_their_own(name, kernels):
    """A kernel that returned None without a reference would free it in time, with headers of Python 3.12 on 3.11."""
    kernel, good = kernel_of(name), calls()[name]
    before = sys.getrefcount(None)
    for _ in range(1000):
        kernel(*good)
    assert abs(sys.getrefcount(None) - before) < 500


@pytest.mark.parametrize("name", calls())
def test_shapes_are_checked_against_each_other(name, kernels):
    """An array that is shorter than the first argument asks for, along either axis."""
    kernel, good = kernel_of(name), calls()[name]
    free = {("score", 1), ("normals", 7)}  # fewer columns, or fewer normals, are valid
    arrays = [at for at, value in enumerate(good) if isinstance(value, np.ndarray)]
    for at in arrays if len(arrays) > 1 else ():
        short = np.ascontiguousarray(good[at][..., :1])
        if (name, at) in free:
            continue
        with pytest.raises(ValueError, match="shapes do not fit"):
            kernel(*good[:at], short, *good[at + 1 :])


@pytest.mark.parametrize("name", calls())
def test_outputs_are_neither_inputs_nor_read_only(name, kernels):
    kernel, good = kernel_of(name), calls()[name]
    arrays = [at for at, value in enumerate(good) if isinstance(value, np.ndarray)]
    before = {at: good[at].copy() for at in arrays}
    kernel(*good)
    written = [at for at in arrays if not np.array_equal(before[at], good[at], equal_nan=True)]
    for at in written:
        frozen = good[at].copy()
        frozen.flags.writeable = False
        with pytest.raises((ValueError, BufferError), match=r"read-only|writable"):
            kernel(*good[:at], frozen, *good[at + 1 :])
        for other in arrays:
            if other != at and good[other].dtype == good[at].dtype and good[other].ndim == good[at].ndim:
                with pytest.raises(ValueError, match=r"shares memory|shapes do not fit"):
                    kernel(*good[:other], good[at], *good[other + 1 :])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 5e-324, 1e308])
@pytest.mark.parametrize("name", calls())
def test_every_number_ends(name, bad, kernels):
    for at, value in enumerate(calls()[name]):
        arguments = list(calls()[name])
        if isinstance(value, np.ndarray) and value.dtype == float:
            value.reshape(-1)[-1] = bad
        elif isinstance(value, float):
            value = bad
        arguments[at] = value
        # A tail that is no number is never reached: the call ends after a thousand attempts.
        with np.errstate(all="ignore"), contextlib.suppress(RuntimeError):
            kernel_of(name)(*arguments)


@pytest.mark.parametrize("answer", [b"", b"short", 5, None])
def test_a_cipher_that_fails_ends_the_call(kernels, answer):
    good = calls()["normals"]
    for at in (0, 1):
        arguments = [*good[:at], lambda text: answer, *good[at + 1 :]]
        with pytest.raises((RuntimeError, TypeError)):
            kernels.normals(*arguments)
        with pytest.raises(ZeroDivisionError):
            kernels.normals(*good[:at], lambda text: 1 // 0, *good[at + 1 :])


@pytest.mark.parametrize("place", [-1, 5, 2**40])
def test_records_of_a_fleet_have_bounds(kernels, place):
    push, records = kernel_of("push"), calls()["exact"][0]
    assert push(np.full(3, 0.5), 1.0, records, 4) == 0.75
    assert push(np.full(3, 0.7), 1.0, records, 4) > 1.0  # not added
    assert push([0.5] * 3, 1.0, records, 4) is push(np.full(4, 0.5), 1.0, records, 4) is None
    assert records.view(np.int64).reshape(5, -1)[4, [3, 10]].tolist() == [1, 2**38]
    before = records.copy()
    for name, good in calls().items():
        if name in ("exact", "publish"):
            with pytest.raises(ValueError, match="shapes do not fit"):
                kernel_of(name)(*good[:-1], place)
    with pytest.raises(ValueError, match="shapes do not fit"):
        kernel_of("add")(
            calls()["add"][0], np.array([0, place, 0]) if place > 0 else np.full(3, ~5), 0, 2, 3, 9, records
        )
    for some in (records, records[:-8]):
        with pytest.raises(ValueError, match="no such record"):
            push(np.full(3, 0.5), 1.0, some, place if len(some) == len(records) else 0)
    before.view(np.int64).reshape(5, -1)[0] = records.view(np.int64).reshape(5, -1)[0]  # that `add` reached
    assert np.array_equal(records, before)
