"""What every noise of `PrivateFPL` promises. A new one joins by one line in `CASES`."""

import numpy as np
import pytest
from dense_forms import strategy

import streampca as sp
from streampca.matrix_factorization.noises import NOISES, Noise
from streampca.store.config import plain as plain_config

CASES: dict[str, Noise] = {"blt": sp.BLT(), "tree": sp.Tree(), "discrete": sp.Tree(discrete=True)}
LEAVES, MU, SENSITIVITY = 21, 0.7, 1.3


def lengths(noise: Noise) -> list[int | None]:
    return [1, 2, LEAVES, *([] if "horizon=None" in noise.unsupported else [None])]


def test_every_shorthand_has_a_case() -> None:
    assert {type(noise) for noise in CASES.values()} == set(NOISES.values())


@pytest.mark.parametrize("name", CASES)
def test_columns_are_as_long_as_the_claim_and_the_factors_make_prefix_sums(name: str) -> None:
    for leaves in lengths(CASES[name]):
        mechanism = CASES[name].mechanism(leaves, MU, SENSITIVITY)
        n = leaves or LEAVES
        encoder, reconstruction = strategy(mechanism, n), mechanism.reconstruction(n)
        norms = SENSITIVITY * np.linalg.norm(encoder, axis=0)
        # Calibration leaves a margin of 5e-7, discrete noise one of 5e-10. An endless stream keeps a part of mu for
        # what is to come.
        assert norms.max() <= MU * (1.0 + 1e-12)
        if leaves is not None:
            assert norms.max() >= MU * (1.0 - 1e-6)
        np.testing.assert_allclose(reconstruction @ encoder, np.tril(np.ones((n, n))), atol=1e-9)
        stds = [mechanism.std(t) for t in range(1, n + 1)]
        np.testing.assert_allclose(np.linalg.norm(reconstruction, axis=1), stds, rtol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_what_it_does_not_support_is_refused_and_the_rest_works(name: str) -> None:
    noise, rows = CASES[name], np.eye(4)[np.arange(8) % 4] * 0.5
    options = {
        "horizon=None": {"horizon": None}, "solver=Smoothed()": {"solver": "smoothed"},
        "publish_regret=True": {"publish_regret": True},
    }  # fmt: skip
    assert noise.unsupported <= set(options)
    for option, given in options.items():
        made = {"n_components": 1, "epsilon": 1.0, "horizon": 8, "release_every": 1, "noise": noise, **given}
        if option in noise.unsupported:
            with pytest.raises(sp.errors.UsageError, match="not supported by"):
                sp.PrivateFPL(**made)
        else:
            assert len(sp.Stream(sp.PrivateFPL(**made), row_norm=1.0, seed=1).push_many(rows).releases) == 8


@pytest.mark.parametrize("value", ["haar", "BLT", 3, None, sp.BLT])
def test_what_is_no_noise_is_refused(value: object) -> None:
    with pytest.raises(sp.errors.BadParameterError, match=r"noise=.*expected one of 'blt', 'tree'"):
        sp.PrivateFPL(n_components=1, epsilon=1.0, release_every=1, horizon=8, noise=value, center=False)


def test_a_noise_of_ones_own_is_used() -> None:
    class Louder(sp.BLT):
        citation = "nowhere"

        def mechanism(self, leaves, mu, sensitivity):  # type: ignore[no-untyped-def]
            return super().mechanism(leaves, mu, 2.0 * sensitivity)

    given = {"n_components": 1, "epsilon": 1.0, "release_every": 1, "horizon": 8}
    made, plain = sp.PrivateFPL(**given, noise=Louder()), sp.PrivateFPL(**given)
    assert made.noise_std(3) == pytest.approx(2.0 * plain.noise_std(3))
    assert made.guarantee.citation.endswith("nowhere")
    with pytest.raises(sp.errors.UsageError, match="Louder"):
        plain_config(made)  # it is not of the public table
