"""The story of the traitor: finding out whose row went into a published subspace."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from streampca.attacks.fingerprinting import Evidence, algorithm_oracle, exact_pca, trace_contributors
from streampca.attacks.picture import draw
from streampca.attacks.pirates import Oracle
from streampca.mechanisms.gaussian import GaussianCovariance
from streampca.privacy.guarantee import gaussian_guarantee
from streampca.privacy.randomness import Randomness
from streampca.processors.perturbed_leader import PerturbedLeader
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.tumbling import Tumbling
from streampca.scenarios.runner import Context

Target = Callable[[Randomness], Oracle]

_DELTA = 1e-6


def run(context: Context) -> dict[str, dict[str, float]]:
    """Trace contributors of PCA without privacy, of leaders and of private processors.

    Each trial uses ``contributors`` rows. ``refuted`` is 1 if contributors are
    accused more often than (1, 1e-6)-DP allows, with confidence 0.999.
    """
    params = context.params
    contributors, average = int(params["contributors"]), int(params["average"])
    trials = max(1, context.rows // contributors)

    def leader(epsilon: float, average: int = 1) -> Target:
        return algorithm_oracle(
            lambda k: PerturbedLeader(n_components=k, epsilon=epsilon, delta=_DELTA), average=average
        )

    def private(epsilon: float, average: int = 1) -> Target:
        return algorithm_oracle(lambda k: PrivateFPL(n_components=k, epsilon=epsilon, delta=_DELTA), average=average)

    def tumbling(k: int) -> Tumbling:
        return Tumbling(GaussianCovariance(n_components=k, epsilon=1.0, delta=_DELTA), every=contributors)

    few = max(1, trials // 4)
    targets = {
        "exact": (exact_pca, 1, trials),
        "leader_without_noise": (leader(1e6), 1, trials),
        "epsilon_1e6": (private(1e6), 1, trials),
        "leader_averaged": (leader(1.0, average), 1, few),
        "private": (private(1.0), 1, trials),
        "private_averaged": (private(1.0, average), 1, few),
        "tumbling": (algorithm_oracle(tumbling), 1, trials),
        "exact_subspace": (exact_pca, 2, few),
        "private_subspace": (private(1.0), 2, few),
    }
    found = {
        name: trace_contributors(
            oracle,
            contributors=contributors,
            length=int(params["length"]),
            padding=int(params["padding"]),
            n_components=k,
            trials=count,
            rate=float(params["rate"]),
            seed=context.seed,
        )
        for name, (oracle, k, count) in targets.items()
    }
    if "picture" in params:
        title = (
            f"Whose row is in the released direction? {contributors} contributors a trial, epsilon = 1 where private"
        )
        draw(Path(params["picture"]), {name.replace("_", " "): evidence for name, evidence in found.items()}, title)
    return {name: _measures(evidence) for name, evidence in found.items()}


def _measures(evidence: Evidence) -> dict[str, float]:
    claim = gaussian_guarantee(
        math.nan, 1.0, _DELTA, adjacency="zero-out", scope="one release", theorem="claimed", citation=""
    )
    return {
        "traced": evidence.traced,
        "trials_traced": evidence.trials_traced,
        "mean_score": float(evidence.contributors.mean()),
        "agreement": evidence.agreement,
        "refuted": float(evidence.refutes(claim)),
    }
