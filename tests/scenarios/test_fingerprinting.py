"""The fingerprinting attack traces where nothing protects; `scenarios/traitor.toml` has where something does."""

from fingerprinting import exact_pca, trace_contributors

from streampca.mechanisms.covariance import GaussianCovariance


def test_pca_without_privacy_gives_contributors_away():
    evidence = trace_contributors(exact_pca, trials=12, contributors=2, length=128, padding=32)
    assert evidence.caught.any(axis=1).mean() > 0.8  # 1 in the long run but for some 1 %
    assert evidence.agreement == 1.0
    assert evidence.refutes(GaussianCovariance(n_components=1, epsilon=1.0, center=False).guarantee)
