"""Streaming, differentially private PCA.

Feed sensitive rows one at a time to a `Stream`; get subspaces that are safe
to publish, and for the trusted side the regret, live.
"""

from streampca import errors, queries, sources
from streampca.auditing import audit
from streampca.mechanisms.approximate_subspace import ApproximateSubspace
from streampca.mechanisms.exact_subspace import ExactSubspace
from streampca.mechanisms.gaussian import GaussianCovariance
from streampca.mechanisms.laplace import LaplaceCovariance
from streampca.mechanisms.matrix_laplace import MatrixLaplaceCovariance
from streampca.mechanisms.subspace_perturbation import SubspacePerturbation
from streampca.mechanisms.wishart import WishartCovariance
from streampca.privacy.budget import Budget
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import Randomness
from streampca.private_regret import PrivateRegret
from streampca.processors.dp_pca import DPPCA
from streampca.processors.oja import Oja
from streampca.processors.perturbed_leader import PerturbedLeader, PrivateFPL
from streampca.processors.private_oja import PrivateOja
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.processors.tumbling import Tumbling
from streampca.regret import RegretLog, RegretRecord
from streampca.release import Release, Subspace
from streampca.rows import RowSource
from streampca.step import Step, Steps
from streampca.stream import Stream

__version__ = "0.1.0"

__all__ = [
    "DPPCA",
    "ApproximateSubspace",
    "Budget",
    "ExactSubspace",
    "GaussianCovariance",
    "Guarantee",
    "LaplaceCovariance",
    "MatrixLaplaceCovariance",
    "Oja",
    "PerturbedLeader",
    "PrivateFPL",
    "PrivateOja",
    "PrivateRegret",
    "Randomness",
    "RegretLog",
    "RegretRecord",
    "Release",
    "RowSource",
    "SlidingWindowPCA",
    "Step",
    "Steps",
    "Stream",
    "Subspace",
    "SubspacePerturbation",
    "Tumbling",
    "WishartCovariance",
    "audit",
    "errors",
    "queries",
    "sources",
]
