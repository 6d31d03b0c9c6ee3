"""Streaming, differentially private PCA.

Feed sensitive rows one at a time to a `Stream`; get subspaces that are safe
to publish, and for the trusted side the regret, live.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streampca import errors, queries, sources
    from streampca.admission import AdmissionReport
    from streampca.auditing.instrument import Audit
    from streampca.auditing.suite import audit
    from streampca.blocks import BlockGram
    from streampca.mechanisms.adaptive_covariance import AdaptiveCovariance
    from streampca.mechanisms.adaptive_laplace import AdaptiveLaplaceCovariance, adaptive_mechanism
    from streampca.mechanisms.approximate_subspace import ApproximateSubspace
    from streampca.mechanisms.exact_subspace import ExactSubspace
    from streampca.mechanisms.gaussian import GaussianCovariance
    from streampca.mechanisms.laplace import LaplaceCovariance, MatrixLaplaceCovariance
    from streampca.mechanisms.subspace_perturbation import SubspacePerturbation
    from streampca.mechanisms.wishart import WishartCovariance
    from streampca.planning import plan
    from streampca.privacy.budget import Budget
    from streampca.privacy.guarantee import Guarantee
    from streampca.privacy.randomness import Randomness
    from streampca.private_regret import PrivateRegret, PrivateRegretRecord
    from streampca.processors.base import Algorithm, Processor
    from streampca.processors.dp_pca import DPPCA
    from streampca.processors.oja import Oja
    from streampca.processors.perturbed_leader import PerturbedLeader
    from streampca.processors.private_fpl import PrivateFPL
    from streampca.processors.private_oja import PrivateOja
    from streampca.processors.sliding_window import SlidingWindowPCA
    from streampca.processors.tumbling import Tumbling
    from streampca.regret import Regret, RegretLog, RegretRecord
    from streampca.release import Release, Subspace, Terms
    from streampca.release_file import read_releases
    from streampca.rows import RowSource
    from streampca.step import BlockStep, Step, Steps
    from streampca.store import Store
    from streampca.store.ledger import Ledger
    from streampca.stream import Stream
    from streampca.users import UserStream

__version__ = "0.2.0.dev0"

# Where each public name lives. They are imported when first used: the command line starts fast.
_HOME = {
    "Algorithm": "processors.base",
    "Processor": "processors.base",
    "Regret": "regret",
    "Terms": "release",
    "AdmissionReport": "admission",
    "Audit": "auditing",
    "AdaptiveCovariance": "mechanisms.adaptive_covariance",
    "AdaptiveLaplaceCovariance": "mechanisms.adaptive_laplace",
    "adaptive_mechanism": "mechanisms.adaptive_laplace",
    "ApproximateSubspace": "mechanisms.approximate_subspace",
    "BlockGram": "blocks",
    "BlockStep": "step",
    "Budget": "privacy.budget",
    "DPPCA": "processors.dp_pca",
    "ExactSubspace": "mechanisms.exact_subspace",
    "GaussianCovariance": "mechanisms.gaussian",
    "Guarantee": "privacy.guarantee",
    "LaplaceCovariance": "mechanisms.laplace",
    "Ledger": "store.ledger",
    "MatrixLaplaceCovariance": "mechanisms.laplace",
    "Oja": "processors.oja",
    "PerturbedLeader": "processors.perturbed_leader",
    "PrivateFPL": "processors.private_fpl",
    "PrivateOja": "processors.private_oja",
    "PrivateRegret": "private_regret",
    "PrivateRegretRecord": "private_regret",
    "Randomness": "privacy.randomness",
    "RegretLog": "regret",
    "RegretRecord": "regret",
    "Release": "release",
    "RowSource": "rows",
    "SlidingWindowPCA": "processors.sliding_window",
    "Step": "step",
    "Steps": "step",
    "Store": "store",
    "Stream": "stream",
    "Subspace": "release",
    "SubspacePerturbation": "mechanisms.subspace_perturbation",
    "Tumbling": "processors.tumbling",
    "UserStream": "users",
    "WishartCovariance": "mechanisms.wishart",
    "audit": "auditing",
    "plan": "planning",
    "read_releases": "release_file",
}
_MODULES = ("errors", "queries", "sources")

__all__ = [
    "DPPCA",
    "AdaptiveCovariance",
    "AdaptiveLaplaceCovariance",
    "AdmissionReport",
    "Algorithm",
    "ApproximateSubspace",
    "Audit",
    "BlockGram",
    "BlockStep",
    "Budget",
    "ExactSubspace",
    "GaussianCovariance",
    "Guarantee",
    "LaplaceCovariance",
    "Ledger",
    "MatrixLaplaceCovariance",
    "Oja",
    "PerturbedLeader",
    "PrivateFPL",
    "PrivateOja",
    "PrivateRegret",
    "PrivateRegretRecord",
    "Processor",
    "Randomness",
    "Regret",
    "RegretLog",
    "RegretRecord",
    "Release",
    "RowSource",
    "SlidingWindowPCA",
    "Step",
    "Steps",
    "Store",
    "Stream",
    "Subspace",
    "SubspacePerturbation",
    "Terms",
    "Tumbling",
    "UserStream",
    "WishartCovariance",
    "adaptive_mechanism",
    "audit",
    "errors",
    "plan",
    "queries",
    "read_releases",
    "sources",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"streampca.{name}")
    if name in _HOME:
        value = globals()[name] = getattr(import_module(f"streampca.{_HOME[name]}"), name)
        return value
    raise AttributeError(f"module 'streampca' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
