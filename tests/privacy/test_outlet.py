"""Noise is fresh, and bound to what it hides and to all that it must not be shared over.

False-alarm rates are stated per test; those of seeded tests hold for the choice of the seed.
"""

import threading
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from hashlib import blake2b

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import streampca as sp
from streampca import _native
from streampca.errors import UsageError
from streampca.linalg.lattice import GramSum, onto_ball
from streampca.linalg.svec import entry_weights, svec_size
from streampca.privacy import outlet as module
from streampca.privacy.discrete_gaussian import LatticeGram, gram_noise
from streampca.privacy.outlet import SCHEME, Chain, Counts, LatticeSum, NoiseSource, Outlet
from streampca.privacy.randomness import VERSION, DrawKeys, Randomness, encoded
from streampca.processors.base import Setting

D = 12
SIZE = svec_size(D)
STD = 4.0
KEY = Randomness(bytes(range(32)))


def rows(seed=0, n=40):
    return onto_ball(np.random.default_rng(seed).normal(size=(n, D)) / np.sqrt(D))


def one_less(given):
    other = given.copy()
    other[3] = 0.0
    return other


def source(*label, randomness=KEY, start=None):
    return NoiseSource(randomness, *(label or ("test",)), start=start)


class Summed:
    """The plainest running noise: the sum of all vectors so far."""

    def __init__(self, noise):
        self.noise = noise

    def advance(self, draws):
        return Summed(self.noise + STD * draws.normal(SIZE))


# Each way out: what is released of some rows, and what of it is exact.
def by_gram(outlet, given):
    gram = GramSum.of(given)
    return outlet.gram("gram", gram, SIZE, STD), gram.packed()


def by_running(outlet, given):
    gram = GramSum.of(given)
    return outlet.running("gram", gram, Summed(np.zeros(SIZE)), STD)[1], gram.packed()


def by_integers(outlet, given):
    exact = LatticeGram(GramSum.of(given))
    return outlet.release("gram", exact, gram_noise(STD, D).draw, STD), exact.gram.packed()


def by_gaussian(outlet, given):
    return outlet.gaussian("sum", given[:5], STD, 2.0**-20), given[:5]


def by_laplace(outlet, given):
    counts = (given[:5] > 0.0).astype(np.int64)
    scale, grid = STD / np.sqrt(2.0), 2.0**-20
    noise = lambda draws: np.rint(scale * draws.laplace(counts.size) / grid) * grid  # noqa: E731
    return outlet.release("counts", Counts(counts), noise), counts


WAYS: dict[str, Callable] = {
    "gram": by_gram, "running": by_running, "integers": by_integers, "gaussian": by_gaussian, "laplace": by_laplace,
}  # fmt: skip


def noises(way, *blocks, outlets):
    return [np.subtract(*way(outlet, given)).ravel() for outlet, given in zip(outlets, blocks, strict=True)]


def cancel(first, second):
    """True if the difference of two noises is smaller than half of what it is for independent ones.

    Independent noise of 60 numbers or more does that with probability below 1e-9.
    """
    return bool(np.linalg.norm(first - second) < 0.5 * np.sqrt(np.sum(first**2) + np.sum(second**2)))


@pytest.fixture
def cloned(monkeypatch):
    """A system that always gives the same bytes, as a cloned virtual machine does once."""
    monkeypatch.setattr(module.os, "urandom", bytes)


def test_keys_chain_and_seeded_bytes_are_those_of_scheme_1():
    """Written out once more. Stored runs and seeded results depend on every byte of it."""
    assert SCHEME == 1
    seeded, start, n = Randomness.from_seed(5), bytes(range(16)), 0x0102030405060708
    full = encoded(SCHEME, VERSION, "test", 3, start)
    link, tag, draw, seed = (seeded.derived("noise", purpose, full) for purpose in ("link", "hash", "draw", "fresh"))
    chain_hash = partial(blake2b, key=link, person=b"streampca chain")
    own, first = source("test", 3, randomness=seeded, start=start), chain_hash(full, digest_size=32).digest()
    assert own.first == (0, first)
    assert (
        own.fresh(n)
        == blake2b(bytes([8, 7, 6, 5, 4, 3, 2, 1]), key=seed, digest_size=16, person=b"streampca fresh").digest()
    )
    hidden, outlet = np.arange(3.0), Outlet(own, own.first)
    drawn = outlet.hide("gram", hidden, b"and")
    tags = [AESGCM(tag).encrypt(bytes(12), b"", part) for part in (hidden.tobytes(), b"and")]
    parts = [b"1|4|gram|", first, b"|", own.fresh(1), *tags]
    digest = chain_hash(b"".join(parts), digest_size=48).digest()
    assert outlet.chain == (1, digest[:32])
    assert (drawn.n, drawn.name) == (1, digest[32:])
    for epoch in (0, 1, 3):
        keys = DrawKeys(blake2b(encoded(epoch), key=draw, digest_size=32, person=b"streampca epoch").digest())
        again = source("test", 3, randomness=seeded, start=start)
        assert again.draws((epoch << 16) + 5, drawn.name).words(2).tobytes() == keys.first(drawn.name)


def run(outlet, given):
    return [way(outlet, given)[0] for way in WAYS.values()] + [outlet.hide("coins").normal(7)]


def test_a_replay_with_the_recorded_bytes_is_bit_identical():
    first = source()
    outlet = Outlet(first, first.first)
    made = run(outlet, rows())
    assert (len(outlet.fresh), outlet.chain.n) == (6, 6)
    again = source(start=first.start)
    replayed = Outlet(again, again.first, outlet.fresh)
    for a, b in zip(made, run(replayed, rows()), strict=True):
        assert a.tobytes() == b.tobytes()
    assert replayed.chain == outlet.chain
    assert replayed.fresh == outlet.fresh
    # Without the record, of other rows, or of another start it is another run.
    others = Outlet(again, again.first), Outlet(again, again.first, outlet.fresh), Outlet(source(), source().first)
    for other, given in zip(others, (rows(), one_less(rows()), rows()), strict=True):
        assert all((a != b).mean() > 0.9 for a, b in zip(made, run(other, given), strict=True))


def test_a_record_of_other_rows_is_refused_once_it_ends():
    own = source()
    with pytest.raises(UsageError, match="the recorded bytes end before vector 3"):
        run(Outlet(own, own.first, [bytes(16)] * 2), rows())


def test_a_seed_reproduces_a_run_and_nothing_is_fresh(monkeypatch):
    monkeypatch.setattr(module.os, "urandom", None)  # not to be called
    made = []
    for seed in (1, 1, 2):
        own = source(randomness=Randomness.from_seed(seed))
        made.append(run(Outlet(own, own.first), rows()))
    for a, b, c in zip(*made, strict=True):
        assert a.tobytes() == b.tobytes()
        assert (a != c).mean() > 0.9
    assert own.fresh(1) != own.fresh(2)


@pytest.mark.parametrize("forgetful", [False, True])
def test_noise_is_bound_to_all_that_went_before(cloned, monkeypatch, forgetful):
    # Two histories that differ once never share noise again. With forgetful links they would.
    own, link = source(), NoiseSource.link
    if forgetful:
        monkeypatch.setattr(
            NoiseSource, "link",
            lambda self, chain, kind, fresh, tags: link(self, Chain(chain.n, self.first.link), kind, fresh, tags),
        )  # fmt: skip
    outlets = Outlet(own, own.first), Outlet(own, own.first)
    for outlet, given in zip(outlets, (rows(), one_less(rows())), strict=True):
        by_gram(outlet, given)
    for seed in range(1, 4):
        assert cancel(*noises(by_gram, rows(seed), rows(seed), outlets=outlets)) is forgetful


def test_every_part_and_every_kind_counts(cloned):
    x, own = np.arange(6.0), source()
    hidden = [
        ("a", x), ("b", x), ("a", x, x), ("a",), ("", x), ("a", x[:5], x[5:]), ("a", x[:4], x[4:]), ("a", x[:5]),
        ("a", np.append(x, 0.0)), ("a", x + 2.0**-40 * (x == 3.0)), ("a", x.astype(np.int64)), ("a", b"x"),
        ("a", b"x", b""), ("a", b""), ("a|1", x), ("1|a", x), ("a", x[::-1].copy()), ("a", x[:0]),
    ]  # fmt: skip
    names = [Outlet(own, own.first).hide(*one).name for one in hidden]
    assert names[13] == names[17]  # nothing is nothing
    assert len(set(names)) == len(names) - 1
    # Arrays of several axes are hidden row by row, whatever their order in memory; they are never misread.
    square = x.reshape(2, 3)
    for same in (square, np.asfortranarray(square)):
        assert Outlet(own, own.first).hide("a", same).name == names[0]
    with pytest.raises(ValueError, match="contiguous"):
        Outlet(own, own.first).hide("a", x[::-1])


def test_fresh_bytes_are_taken_when_they_are_used(monkeypatch):
    taken = []
    monkeypatch.setattr(module.os, "urandom", lambda size: taken.append(size) or bytes(size))
    own = source()
    assert taken == [16]  # the start
    outlet = Outlet(own, own.first)
    assert taken == [16]
    run(outlet, rows())
    assert taken == [16] * 7


BASE = sp.Tumbling(sp.GaussianCovariance(n_components=2, epsilon=1.0, center=False), release_every=5)


def first_name(algorithm=BASE, n_features=D, label=(), randomness=KEY, start=bytes(16), x=0.0):
    setting = Setting(sp.Terms(algorithm.guarantee), label=label)
    processor = algorithm.start(n_features, randomness, setting, start=start)
    return processor.outlet().hide("gram", np.array([x])).name


def test_configurations_that_differ_in_anything_share_no_noise(cloned, monkeypatch):
    mechanism = BASE.mechanism
    changes = {
        "n_components": 1, "epsilon": np.nextafter(1.0, 2.0), "delta": np.nextafter(1e-6, 1.0),
        "adjacency": "replace", "discrete_noise": True, "center": True, "unit": "who",
    }  # fmt: skip
    assert set(changes) == {field.name for field in fields(mechanism) if field.init}
    names = [first_name(replace(BASE, mechanism=replace(mechanism, **{name: v}))) for name, v in changes.items()]
    changes = {"release_every": 6, "horizon": 50, "keep_short": True}
    assert set(changes) | {"mechanism"} == set(BASE.parameters())
    names += [first_name(replace(BASE, **{name: value})) for name, value in changes.items()]
    names += [
        first_name(), first_name(n_features=D + 1), first_name(start=bytes(15) + b"1"),
        first_name(randomness=Randomness(bytes(32))), first_name(label=("group", "a")), first_name(label=("groupa",)),
        first_name(label=("group", 1)), first_name(label=("group", "1")), first_name(label=(("group", "a"),)),
        first_name(x=1.0),
    ]  # fmt: skip
    std = mechanism.sigma
    constants = [(std, 1), (std, 1.0), (std, None, None), (std,), (None, std)]
    constants += [(np.nextafter(std, side), None) for side in (0.0, 9.0)]
    for changed in constants:
        monkeypatch.setattr(sp.GaussianCovariance, "constants", lambda self, d, changed=changed: changed)
        names.append(first_name())
    monkeypatch.setattr(sp.GaussianCovariance, "constants", lambda self, d: (std, None))
    assert first_name() in names  # equal configurations do share it, and so the test sees what it looks for
    for name in ("SCHEME", "VERSION"):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, 99)
            names.append(first_name())
    assert len(set(names)) == len(names)


def shifts(rng, grid, size, largest):
    return rng.integers(-largest, largest + 1, size) * grid


def test_a_noisy_gram_matrix_depends_on_the_sum_with_the_noise_alone():
    # Moving some of the matrix into the noise changes no bit; so the low digits say nothing of the rows.
    rng, gram, unit = np.random.default_rng(0), GramSum.of(rows()), 2.0**-40
    diagonal = entry_weights(D) == 1.0
    for scale in (1e-3, 1.0, 300.0):
        noise = np.rint(scale * rng.normal(size=SIZE) / unit) * unit
        shift = np.where(diagonal, shifts(rng, unit, SIZE, 2**30), 0.0)  # off it, noise is scaled by sqrt(1/2)
        parts = np.floor(gram.parts[1] + shift)
        moved = GramSum(D, np.stack([gram.parts[0] + parts, gram.parts[1] + shift - parts]))
        for compiled in (True, False):
            before = _native.use(compiled)
            try:
                assert gram.noisy(noise, scale).tobytes() == moved.noisy(noise - shift, scale).tobytes()
            finally:
                _native.use(before)


@pytest.mark.parametrize("grid", [1.0, 2.0**-20, 2.0**-30])
def test_a_lattice_sum_depends_on_the_sum_with_the_noise_alone(grid):
    rng = np.random.default_rng(2)
    values, shift = shifts(rng, grid, (6, 5), 1000), shifts(rng, grid, (6, 5), 1000)
    noise = np.rint(100.0 * rng.normal(size=30)) * grid
    first, moved = LatticeSum(values, grid), LatticeSum(values + shift, grid)
    assert first.noisy(noise, 100.0 * grid).tobytes() == moved.noisy(noise - shift.ravel(), 100.0 * grid).tobytes()
    assert first.noisy(noise, 100.0 * grid).shape == (6, 5)
    np.testing.assert_array_equal(LatticeSum(-0.0 * values, grid).hidden[0].view(np.int64), 0)


def test_keys_change_with_the_epoch_and_numbers_go_on():
    own, name = source(), bytes(16)
    edge = 2**16
    words = {n: own.draws(n, name).words(8).tobytes() for n in (1, edge - 1, edge, edge + 1, 5 * edge, 2**40)}
    assert words[1] == words[edge - 1]  # one key an epoch; names, of which n is a part, differ
    assert words[edge] == words[edge + 1]
    assert len(set(words.values())) == 4
    assert own.draws(1, name).words(8).tobytes() == words[1]
    outlet = Outlet(own, Chain(edge - 2, bytes(32)))
    drawn = [outlet.hide("gram", np.zeros(1)) for _ in range(5)]
    assert [d.n for d in drawn] == list(range(edge - 1, edge + 4))
    assert len({d.name for d in drawn}) == 5
    for d in reversed(drawn):  # what is drawn again finds its epoch again
        np.testing.assert_array_equal(own.draws(d.n, d.name).normal(9), d.normal(9))


def test_threads_in_different_epochs_do_not_mix_keys():
    own, name = source(), bytes(16)
    expected = {n: own.draws(n, name).words(2).tobytes() for n in (1, 2**16)}
    wrong = []

    def work(n):
        for _ in range(3000):
            if own.draws(n, name).words(2).tobytes() != expected[n]:
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
