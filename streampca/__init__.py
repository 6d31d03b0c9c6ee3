"""Streaming, differentially private PCA.

Feed sensitive rows one at a time to a `Stream`; get subspaces that are safe
to publish, and for the trusted side the regret, live.
"""

from streampca import errors, sources
from streampca.privacy.budget import Budget
from streampca.privacy.guarantee import Guarantee
from streampca.processors.perturbed_leader import PerturbedLeader, PrivateFPL
from streampca.regret import RegretLog, RegretRecord
from streampca.release import Release, Subspace
from streampca.step import Step, Steps
from streampca.stream import Stream

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "Guarantee",
    "PerturbedLeader",
    "PrivateFPL",
    "RegretLog",
    "RegretRecord",
    "Release",
    "Step",
    "Steps",
    "Stream",
    "Subspace",
    "errors",
    "sources",
]
