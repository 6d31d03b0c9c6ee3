"""Keys, labels and the laws of what is drawn. False-alarm rates are stated per test; seeds are fixed."""

from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings, strategies as st
from scipy import stats

from streampca import _native
from streampca.errors import BadParameterError
from streampca.privacy import randomness as module
from streampca.privacy.randomness import VERSION, DrawKeys, Draws, NoiseStream, Randomness, encoded

N = 400_000
NAME = bytes(range(16))


def stream(*label: str | int) -> NoiseStream:
    return Randomness.from_seed(7).stream(*(label or ("a",)))


# -- labels --------------------------------------------------------------------------------------

scalars = st.none() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
labels = st.lists(st.recursive(scalars, lambda part: st.lists(part, max_size=3).map(tuple)), max_size=5).map(tuple)


def decoded(text: bytes) -> tuple[object, ...]:
    """What `encoded` was given."""
    parts: list[object] = []
    while text:
        kind, size = text[:1], int.from_bytes(text[1:9], "little")
        part, text = text[9 : 9 + size], text[9 + size :]
        read = {
            b"n": lambda part: None,
            b"i": lambda part: int(part),
            b"f": lambda part: float(np.frombuffer(part, "<f8")[0]),
            b"s": lambda part: part.decode(),
            b"b": lambda part: part,
            b"t": decoded,
        }
        parts.append(read[kind](part))
    return tuple(parts)


@settings(max_examples=50, deadline=None)
@given(labels)
def test_a_label_can_be_read_back_from_its_bytes(label: tuple[object, ...]) -> None:
    assert repr(decoded(encoded(*label))) == repr(label)  # repr tells 0.0 from -0.0, and 1 from 1.0


def test_what_a_label_cannot_hold_is_refused() -> None:
    with pytest.raises(BadParameterError, match="label="):
        encoded([1, 2])


# -- keys ----------------------------------------------------------------------------------------


def test_a_draw_is_a_function_of_key_label_and_index() -> None:
    a, b = stream("x", 1), stream("x", 1)
    b.normal(9, 1000)  # other draws in between change nothing
    np.testing.assert_array_equal(a.normal(3, 500), b.normal(3, 500))
    np.testing.assert_array_equal(a.draws(3).words(10), b.draws(3).words(20)[:10])
    others = [stream("x", 2), stream("x", "1"), stream("x1"), Randomness.from_seed(8).stream("x", 1)]
    words = [a.draws(4).words(8), *(other.draws(3).words(8) for other in others)]
    assert not any((a.draws(3).words(8) == other).any() for other in words)


def ecb(key: bytes, person: bytes, blocks: list[bytes]) -> bytes:
    derived = blake2b(key, digest_size=32, person=person).digest()
    return Cipher(algorithms.AES256(derived), modes.ECB()).encryptor().update(b"".join(blocks))


def test_words_are_aes_256_of_the_name_and_the_number_of_the_block() -> None:
    key, name = bytes(range(32)), int.from_bytes(NAME, "little")
    blocks = [(name ^ i << 64).to_bytes(16, "little") for i in range(4)]
    draws = Draws(DrawKeys(key), 1, NAME)
    assert draws.words(8).tobytes() == ecb(key, b"streampca words", blocks)
    assert draws.words(7).tobytes() == ecb(key, b"streampca words", blocks)[:56]
    assert draws.words(4, 2).tobytes() == ecb(key, b"streampca words", blocks)[32:]
    # Further words have a key of their own, and are addressed by coordinate and attempt.
    blocks = [(name ^ 5 ^ attempt << 64).to_bytes(16, "little") for attempt in range(3)]
    more = draws.more(5)
    assert np.array([next(more) for _ in range(6)], dtype="<u8").tobytes() == ecb(key, b"streampca more", blocks)


def test_draws_of_version_2() -> None:
    """Seeded results depend on these numbers: `VERSION` changes with them."""
    assert VERSION == 2
    assert Randomness.from_seed(7).key.hex() == "4d3eefcd403dd3b89f99d7ddbd353cddc2da139502523d8c37e67f9609978a8e"
    noise = Randomness(bytes(range(32))).stream("x", 3)
    assert noise.draws(1).words(3).tolist() == [0xEEDDEE522AD26303, 0x5F17D00079CABEA1, 0xEA9B76FEF488FEBD]
    assert noise.draws(1).uniform(2).tolist() == [0.933073897419328, 0.3714571000253199]
    np.testing.assert_allclose(noise.draws(1).laplace(2), [-0.06927087717767269, -0.9903218992169653], rtol=1e-15)
    normal = noise.normal(2, 20_000)  # in three chunks, some of it from wedges and the tail
    np.testing.assert_allclose(normal[:2], [0.21173636756403713, -0.04086901816542583], rtol=1e-14)
    assert normal.sum() == pytest.approx(138.0269988341611, rel=1e-12)
    assert float(normal @ normal) == pytest.approx(19650.8400155585, rel=1e-12)


def test_keys_are_fresh_and_never_printed() -> None:
    a, b = Randomness(), Randomness()
    assert (a.stream("x").draws(0).words(4) != b.stream("x").draws(0).words(4)).all()
    assert repr(a) == "Randomness(secret)"
    assert repr(Randomness.from_seed(1)) == "Randomness(seeded)"
    assert Randomness(bytes(32)).is_seeded is False
    assert Randomness.from_seed(1).is_seeded is True


@pytest.mark.parametrize("key", [b"short", "x" * 32, 5])
def test_bad_keys(key: object) -> None:
    with pytest.raises(BadParameterError, match="32 bytes"):
        Randomness(key)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [1.5, True, "1"])
def test_bad_seeds(seed: object) -> None:
    with pytest.raises(BadParameterError, match=f"seed={seed!r}"):
        Randomness.from_seed(seed)  # type: ignore[arg-type]


# -- normals: each test below has a false-alarm rate of 1e-4 or less ----------------------------------


def test_normals_are_normal_in_body_and_tails() -> None:
    x = stream().normal(0, N)
    assert stats.kstest(x, "norm").pvalue > 1e-4
    assert stats.kstest(x / 1.02, "norm").pvalue < 1e-4  # two percent of scale are seen
    assert abs(x.var() - 1.0) < 3.9 * np.sqrt(2.0 / N)
    assert abs((x**4).mean() - 3.0) < 3.9 * np.sqrt(96.0 / N)
    for edge in (1.0, 2.5, 4.2, 4.385945034871305):
        count, p = int((np.abs(x) > edge).sum()), 2 * stats.norm.sf(edge)
        assert stats.binomtest(count, N, p).pvalue > 1e-4
    assert stats.ks_2samp(x[x > 0], -x[x < 0]).pvalue > 1e-4


def test_every_layer_of_the_ziggurat_is_right() -> None:
    """Densities over 400 equal cells; a wrong edge, ratio or wedge test shows as one bad cell."""
    x = stream("cells").normal(1, 4 * N)
    cells = stats.norm.ppf(np.linspace(0, 1, 401))
    counts = np.histogram(x, cells)[0]
    assert stats.chisquare(counts).pvalue > 1e-4
    bent = np.where((x > 0.5) & (x < 0.51), x + 0.01, x)
    assert stats.chisquare(np.histogram(bent, cells)[0]).pvalue < 1e-4


@pytest.mark.parametrize("layer", [1, 2, 50, 2000, 4000, 4094, 4095])
def test_numbers_outside_their_rectangle_follow_the_wedge(layer: int) -> None:
    # A number in the wedge of its layer is kept if it is below the curve there; else a normal takes its place.
    edges, heights = module._EDGES, module._HEIGHTS
    inner, outer, tries = edges[layer + 1], edges[layer], 4000
    uniform = stream("wedge", layer).draws(0).uniform(tries)
    starts = inner + (outer - inner) * uniform
    keep = (np.exp(-0.5 * starts**2) - heights[layer]) / (heights[layer + 1] - heights[layer])
    draws = stream("wedge", layer).draws(1)
    made = np.array([module._finished(layer, float(x), draws.more(i)) for i, x in enumerate(starts)])
    kept = made == starts
    # The sum of independent coin flips of known chances, within 3.9 standard deviations.
    assert abs(kept.sum() - keep.sum()) < 3.9 * np.sqrt((keep * (1.0 - keep)).sum())
    assert stats.kstest(made[~kept], "norm").pvalue > 2e-5
    assert stats.kstest(made, "norm").pvalue < 1e-9


def test_numbers_beyond_the_last_edge_are_of_the_tail() -> None:
    draws, far = stream("tail").draws(0), module._R
    for sign in (1.0, -1.0):
        made = sign * np.array([module._finished(0, sign * 5.0, draws.more(i)) for i in range(20_000)])
        assert made.min() >= far
        assert stats.kstest(made, lambda x: 1.0 - stats.norm.sf(x) / stats.norm.sf(far)).pvalue > 5e-5
        assert stats.kstest(made, lambda x: 1.0 - np.exp(-far * (x - far))).pvalue < 1e-5


@pytest.mark.parametrize(("second", "kept"), [(0.60, True), (0.61, False)])
def test_a_number_beyond_the_last_edge_is_kept_under_the_curve(second: float, kept: bool) -> None:
    # One that is 1 beyond it is kept with probability exp(-1/2) = 0.6065; the pair after it always is.
    uniforms = (np.exp(-module._R), second, np.exp(-0.5 * module._R), 1e-9)
    words = [int(uniform * 2.0**53) << 11 for uniform in uniforms]
    assert module._finished(0, 5.0, iter(words)) == pytest.approx(module._R + (1.0 if kept else 0.5), abs=1e-9)


def test_words_beyond_the_first_are_those_of_the_coordinate(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[list[int]] = []

    def noted(field: int, value: float, more: Iterator[int]) -> float:
        found.append([next(more) for _ in range(6)])
        return value

    monkeypatch.setattr(module, "_finished", noted)
    monkeypatch.setattr(_native, "compiled", None)  # which finishes normals by itself
    draws = Randomness.from_seed(0).stream("test").draws(0)
    draws.normal(10_000)
    words = {some[0]: some for some in (list(islice(draws.more(i), 6)) for i in range(10_000))}
    assert len(found) > 3
    assert all(words[some[0]] == some for some in found)


def test_laplace_and_uniform() -> None:
    assert stats.kstest(stream().draws(0).laplace(N), "laplace").pvalue > 1e-4
    u = stream().draws(0).uniform(N)
    assert stats.kstest(u, "uniform").pvalue > 1e-4
    assert u.min() > 0.0
    assert u.max() < 1.0


def test_uniforms_are_midpoints_of_their_cells():
    assert module._unit(0) == 2.0**-54
    assert module._unit(2**64 - 1) == 1.0 - 2.0**-54
    assert module._open_uniform(np.array([0, 2**64 - 1], dtype=np.uint64)).tolist() == [2.0**-54, 1.0 - 2.0**-54]
