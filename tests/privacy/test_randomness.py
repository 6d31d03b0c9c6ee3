import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from streampca.errors import BadParameter
from streampca.privacy.randomness import NoiseStream, Randomness

N = 400_000


def stream(*label: str | int) -> NoiseStream:
    return Randomness.from_seed(7).stream(*(label or ("a",)))


def test_a_draw_is_a_function_of_key_label_and_index() -> None:
    a, b = stream("x", 1), stream("x", 1)
    b.normal(9, 1000)  # other draws in between change nothing
    np.testing.assert_array_equal(a.normal(3, 500), b.normal(3, 500))
    np.testing.assert_array_equal(a.words(3, 10), b.words(3, 20)[:10])
    others = [stream("x", 2).words(3, 8), stream("x", "1").words(3, 8), a.words(4, 8), stream("x1").words(3, 8)]
    others.append(Randomness.from_seed(8).stream("x", 1).words(3, 8))
    assert not any((a.words(3, 8) == other).any() for other in others)


def test_words_are_aes_256_in_counter_mode() -> None:
    key, index = bytes(range(32)), 5
    counter = index.to_bytes(8, "big") + bytes(8)
    expected = Cipher(algorithms.AES256(key), modes.CTR(counter)).encryptor().update(bytes(64))
    assert NoiseStream(key).words(index, 8).tobytes() == expected


def test_keys_are_fresh_and_never_printed() -> None:
    a, b = Randomness(), Randomness()
    assert (a.stream("x").words(0, 4) != b.stream("x").words(0, 4)).all()
    assert repr(a) == "Randomness(secret)"
    assert repr(Randomness.from_seed(1)) == "Randomness(seeded)"
    assert Randomness(bytes(32)).is_seeded is False


@pytest.mark.parametrize("key", [b"short", "x" * 32, 5])
def test_bad_keys(key: object) -> None:
    with pytest.raises(BadParameter, match="32 bytes"):
        Randomness(key)  # type: ignore[arg-type]


def test_bad_seeds_and_indices() -> None:
    with pytest.raises(BadParameter, match=r"seed=1\.5"):
        Randomness.from_seed(1.5)  # type: ignore[arg-type]
    with pytest.raises(BadParameter, match="index=-1"):
        stream().normal(-1, 3)


# False-alarm rate 1e-4 each; seeds are fixed, so a pass is a pass for good.
def test_normals_are_normal_in_body_and_tails() -> None:
    x = stream().normal(0, N)
    assert stats.kstest(x, "norm").pvalue > 1e-4
    assert stats.kstest(x / 1.02, "norm").pvalue < 1e-4  # two percent of scale are seen
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


def test_draws_of_different_indices_are_uncorrelated() -> None:
    draws = np.array([stream().normal(i, 2000) for i in range(40)])
    correlations = np.corrcoef(draws)[np.triu_indices(40, 1)]
    assert np.abs(correlations).max() * np.sqrt(2000) < 5.0


def test_laplace_uniform_and_permutation() -> None:
    assert stats.kstest(stream().laplace(0, N), "laplace").pvalue > 1e-4
    u = stream().uniform(0, N)
    assert stats.kstest(u, "uniform").pvalue > 1e-4
    assert u.min() > 0.0
    assert u.max() < 1.0
    order = stream().permutation(0, 1000)
    np.testing.assert_array_equal(np.sort(order), np.arange(1000))
    firsts = [stream().permutation(i, 4)[0] for i in range(4000)]
    assert stats.chisquare(np.bincount(firsts)).pvalue > 1e-4


@pytest.mark.parametrize("count", [0, 1, 2])
def test_small_draws(count: int) -> None:
    assert stream().normal(0, count).shape == (count,)
