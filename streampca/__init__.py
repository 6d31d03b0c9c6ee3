"""Streaming, differentially private PCA.

Feed sensitive rows to a `Stream`; get subspaces that are safe to publish, and the live regret for the curator.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from streampca.tables import RENDERERS

if TYPE_CHECKING:
    from streampca import errors as errors, papers as papers, queries as queries, sources as sources
    from streampca._native import kernels as kernels
    from streampca.auditing.instrument import Audit as Audit
    from streampca.auditing.suite import audit as audit
    from streampca.facade.check import check as check
    from streampca.facade.pca import pca as pca
    from streampca.fleet import Fleet as Fleet
    from streampca.matrix_factorization.noises import BLT as BLT, Tree as Tree
    from streampca.mechanisms.adaptive import (
        AdaptiveCovariance as AdaptiveCovariance,
        AdaptiveLaplaceCovariance as AdaptiveLaplaceCovariance,
        adaptive_mechanism as adaptive_mechanism,
    )
    from streampca.mechanisms.covariance import (
        GaussianCovariance as GaussianCovariance,
        MatrixLaplaceCovariance as MatrixLaplaceCovariance,
    )
    from streampca.mechanisms.exact_subspace import ExactSubspace as ExactSubspace
    from streampca.planning.plan import plan as plan
    from streampca.privacy.budget import Budget as Budget
    from streampca.privacy.guarantee import Guarantee as Guarantee
    from streampca.privacy.randomness import Randomness as Randomness
    from streampca.privacy.unit import Person as Person
    from streampca.processors.base import Algorithm as Algorithm, Processor as Processor
    from streampca.processors.dp_pca import DPPCA as DPPCA
    from streampca.processors.oja import Oja as Oja
    from streampca.processors.private_fpl import PrivateFPL as PrivateFPL
    from streampca.processors.private_oja import PrivateOja as PrivateOja
    from streampca.processors.private_sketch import PrivateSketch as PrivateSketch
    from streampca.processors.sliding_window import SlidingWindowPCA as SlidingWindowPCA
    from streampca.processors.solvers import Exact as Exact, Smoothed as Smoothed, Tracking as Tracking
    from streampca.processors.tumbling import Tumbling as Tumbling
    from streampca.regret.private_regret import (
        PrivateRegret as PrivateRegret,
        PrivateRegretRecord as PrivateRegretRecord,
    )
    from streampca.regret.regret import Regret as Regret, RegretLog as RegretLog, RegretRecord as RegretRecord
    from streampca.release.file import read_releases as read_releases
    from streampca.release.release import Release as Release
    from streampca.release.subspace import Subspace as Subspace
    from streampca.release.terms import Terms as Terms
    from streampca.rows.protocol import RowSource as RowSource
    from streampca.rows.report import AdmissionReport as AdmissionReport
    from streampca.store import Store as Store
    from streampca.store.ledger import Ledger as Ledger
    from streampca.stream.blocks import BlockGram as BlockGram
    from streampca.stream.step import Step as Step, Steps as Steps
    from streampca.stream.stream import Stream as Stream
    from streampca.stream.tenants import FleetStep as FleetStep
    from streampca.views.check import Check as Check

__version__ = "0.2.0.dev0"

# Module of each public name. Names are imported when first used, so that the command line starts fast.
_HOME = {
    name: module
    for module, names in {
        "_native": "kernels",
        "auditing": "Audit audit",
        "facade.check": "check",
        "facade.pca": "pca",
        "fleet": "Fleet",
        "matrix_factorization.noises": "BLT Tree",
        "mechanisms.adaptive": "AdaptiveCovariance AdaptiveLaplaceCovariance adaptive_mechanism",
        "mechanisms.covariance": "GaussianCovariance MatrixLaplaceCovariance",
        "mechanisms.exact_subspace": "ExactSubspace",
        "planning": "plan",
        "privacy.budget": "Budget",
        "privacy.guarantee": "Guarantee",
        "privacy.randomness": "Randomness",
        "privacy.unit": "Person",
        "processors.base": "Algorithm Processor",
        "processors.dp_pca": "DPPCA",
        "processors.oja": "Oja",
        "processors.private_fpl": "PrivateFPL",
        "processors.private_oja": "PrivateOja",
        "processors.private_sketch": "PrivateSketch",
        "processors.sliding_window": "SlidingWindowPCA",
        "processors.solvers": "Exact Smoothed Tracking",
        "processors.tumbling": "Tumbling",
        "regret.private_regret": "PrivateRegret PrivateRegretRecord",
        "regret.regret": "Regret RegretLog RegretRecord",
        "release.file": "read_releases",
        "release.release": "Release",
        "release.terms": "Terms",
        "release.subspace": "Subspace",
        "rows.protocol": "RowSource",
        "rows.report": "AdmissionReport",
        "store": "Store",
        "store.ledger": "Ledger",
        "stream.blocks": "BlockGram",
        "stream.step": "Step Steps",
        "stream.stream": "Stream",
        "stream.tenants": "FleetStep",
        "views.check": "Check",
    }.items()
    for name in names.split()
}
# `streampca.views` is above the releases and streams that it shows; it adds its renderers to the table.
RENDERERS["views"] = lambda: import_module("streampca.views")

_MODULES = ("errors", "papers", "queries", "sources")

__all__ = sorted([*_HOME, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"streampca.{name}")
    if name in _HOME:
        # Kept among the globals, so that this function is called once for each name.
        value = globals()[name] = getattr(import_module(f"streampca.{_HOME[name]}"), name)
        return value
    import_module("streampca.errors").refuse_guess(["streampca"], name, AttributeError, "name")
    raise AttributeError(f"module 'streampca' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
