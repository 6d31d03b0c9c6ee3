"""Fingerprinting attack: whose rows went into a published subspace."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from scenario import Context

from streampca.mechanisms.covariance import GaussianCovariance
from streampca.papers.perturbed_leader import PerturbedLeader
from streampca.privacy.budget import Budget
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import Randomness
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.tumbling import Tumbling

sys.path.insert(0, str(Path(__file__).parent))
from fingerprinting import Oracle, algorithm_oracle, exact_pca, trace_contributors

Target = Callable[[Randomness], Oracle]

_DELTA = 1e-6


def run(context: Context) -> dict[str, dict[str, float]]:
    """Trace contributors of PCA without privacy, of leaders and of private algorithms.

    Each trial uses ``contributors`` rows. ``refuted`` is 1 if contributors are
    accused more often than (1, 1e-6)-DP allows, with confidence 0.999.
    """
    params = context.params
    contributors, average = int(params["contributors"]), int(params["average"])
    trials = max(1, context.rows // contributors)

    def of(kind: type[PrivateFPL | PerturbedLeader], epsilon: float, average: int = 1) -> Target:
        return algorithm_oracle(lambda k: kind(n_components=k, epsilon=epsilon, delta=_DELTA), average=average)

    def tumbling(k: int) -> Tumbling:
        return Tumbling(GaussianCovariance(n_components=k, epsilon=1.0, delta=_DELTA), release_every=contributors)

    few = max(1, trials // 4)
    targets = {
        "exact": (exact_pca, 1, trials),
        "leader_without_noise": (of(PerturbedLeader, 1e6), 1, trials),
        "epsilon_1e6": (of(PrivateFPL, 1e6), 1, trials),
        "leader_averaged": (of(PerturbedLeader, 1.0, average), 1, few),
        "private": (of(PrivateFPL, 1.0), 1, trials),
        "private_averaged": (of(PrivateFPL, 1.0, average), 1, few),
        "tumbling": (algorithm_oracle(tumbling), 1, trials),
        "exact_subspace": (exact_pca, 2, few),
        "private_subspace": (of(PrivateFPL, 1.0), 2, few),
    }
    claim = Guarantee(1.0, _DELTA, "zero-out", "one release", "claimed", "", mu=Budget(1.0, _DELTA).mu)
    size = {"contributors": contributors, **{name: int(params[name]) for name in ("length", "padding")}}
    found = {}
    for name, (oracle, k, count) in targets.items():
        evidence = trace_contributors(
            oracle, n_components=k, trials=count, rate=float(params["rate"]), seed=context.seed, **size
        )
        found[name] = {
            "traced": evidence.traced, "trials_traced": evidence.trials_traced,
            "mean_score": float(evidence.contributors.mean()), "agreement": evidence.agreement,
            "refuted": float(evidence.refutes(claim)),
        }  # fmt: skip
    return found
