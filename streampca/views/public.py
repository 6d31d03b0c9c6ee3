"""The public page: made of releases, and of nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.types import FloatArray
from streampca.regret.private_regret import PrivateRegretRecord
from streampca.release.estimates import Estimates
from streampca.release.release import Release
from streampca.views import facts
from streampca.views.card import component_rows, components_of
from streampca.views.facts import Fact
from streampca.views.page import PageData, Panel, Table, Thinned
from streampca.views.plots import (
    LARGE,
    eigenvalue_title,
    feature_names,
    has_drawable_gram,
    moving,
    signs_like,
    trails,
)  # fmt: skip

_PUBLISHABLE = "Publishable. Everything here is computed from private releases only, under their guarantee."
#: Number of subspaces drawn over time, at most.
_PLACES = 64
_NOTHING = "Not private. What ran promises nothing: treat this page like the rows themselves."


class PublicPage(PageData):
    """Page that is a function of releases: post-processing, under their guarantee.

    It accepts `Release` and `PrivateRegretRecord` objects only, and holds no stream, no processor and no exact regret.

    Parameters
    ----------
    title : head of the page. Public.
    parameters : public parameters of the run, such as the header of a releases file holds.
    """

    def __init__(self, title: str = "streampca", parameters: Mapping[str, Any] | None = None) -> None:
        super().__init__(title)
        self._parameters = dict(parameters or {})
        self._releases = Table(facts.COLUMNS)
        self._intervals = Table(("t", "low", "high"))
        self._places: Thinned[FloatArray] = Thinned(_PLACES)
        self._latest: Release | None = None
        self._first_t = 0
        self._regret: PrivateRegretRecord | None = None
        self._count = 0
        self._components = 0  # of all releases drawn, the most
        self._has_records = False  # of the regret, from a file of their own
        self._drawn: FloatArray | None = None
        self._estimated: tuple[Release | None, Estimates | None] = (None, None)
        self._only_private = False
        self.is_publishable, self.notice = True, _PUBLISHABLE

    def only_private(self) -> None:
        """Refuse releases without a guarantee from now on. Raises `BadParameterError` if the page holds one."""
        if not self.is_publishable:
            raise BadParameterError("these releases have no privacy guarantee and may not be published")
        self._only_private = True

    def describe(self, parameters: Mapping[str, Any]) -> None:
        """Set the public parameters of the run, and the title by them."""
        with self.lock:
            if self._parameters != dict(parameters):
                self._parameters = dict(parameters)
                if "processor" in parameters:  # not the name of a file, which may be private
                    k = parameters.get("n_components")
                    self.title = f"streampca · {parameters['processor']}" + (f", k = {k}" if k else "")
                self.version += 1

    def add(self, releases: Sequence[Release]) -> None:
        """Add releases, in order.

        Raises
        ------
        BadParameterError
            If one is something else, or has no guarantee on a page that is `only_private`.
        """
        with self.lock:
            for release in releases:
                if type(release) is not Release:
                    raise BadParameterError(
                        f"{type(release).__name__} is not a Release; only releases may be published"
                    )
                if not release.guarantee.is_private:  # as those of `Oja`
                    self.is_publishable, self.notice = False, _NOTHING
                if self._only_private:
                    self.only_private()
                before, self._latest = self._latest, release
                self._count += 1
                self._first_t = self._first_t or release.t
                if self._releases.keeps_next:
                    self._components = max(self._components, min(facts.COMPONENTS, release.subspace.n_components))
                self._releases.add(partial(facts.release_row, release, before))
                if release.n_features <= LARGE:
                    self._places.offer(partial(attrgetter("subspace.basis"), release))
                carries = release.details.get("rewards") is not None and release.noise_std is not None
                if carries and not self._has_records and has_drawable_gram(release):
                    self._intervals.add(partial(self._interval_of, release))  # computed for the rows kept
            if releases:
                self.ended = ""
                self.version += 1

    def add_regret(self, records: Sequence[PrivateRegretRecord]) -> None:
        """Add records of the publishable regret, in order, instead of those computed from the releases.

        Raises
        ------
        BadParameterError
            If one is something else.
        """
        with self.lock:
            for record in records:
                if type(record) is not PrivateRegretRecord:
                    raise BadParameterError(
                        f"{type(record).__name__} is not a PrivateRegretRecord: it may not be published"
                    )
                if not self._has_records:
                    self._has_records, self._intervals = True, Table(self._intervals.columns)
                self._regret = record
                self._intervals.add(partial(_interval, record))
                self.version += 1

    def tables(self) -> Mapping[str, Table]:
        return {"releases": self._releases, "intervals": self._intervals}

    def facts(self) -> list[Fact]:
        latest = self._latest
        if latest is None:
            return [Fact("Releases", "none yet")]
        shown = facts.released_facts(latest, self._count, self._estimates())
        if self._regret is not None:
            low, high = self._regret.average
            confidence = f"{100 * self._regret.confidence:g} %"
            shown.insert(3, Fact(f"Regret per row, {confidence} interval", f"{low:.4g} to {high:.4g}"))
        return shown

    def _estimates(self) -> Estimates | None:
        """Estimates from the latest release, computed once for facts and loadings."""
        latest = self._latest
        if latest is not None and self._estimated[0] is not latest:
            self._estimated = latest, facts.estimates_of(latest)
        return self._estimated[1]

    def panels(self) -> list[Panel]:
        panels, has = [], self._releases.has
        names = [f"component {i}" for i in range(1, self._components + 1)]
        if self._intervals.items:
            panels.append(Panel(
                "intervals", "Regret per row: interval",
                "The exact regret lies in the band with the stated confidence, at each time separately.",
                "intervals", (), ("low", "high", "interval"), unit="squared row norm",
            ))  # fmt: skip
        if self._latest is not None and has("value_1"):
            noise = (("noise", "noise level"),) if has("noise") else ()
            panels.append(Panel(
                "values", eigenvalue_title(self._latest),
                "Of the released matrix. What lies under the noise level cannot be told from noise."
                if noise else "As released.",
                "releases", (*zip(facts.EIGENVALUES, names, strict=False), *noise), log=True, unit="squared row norm",
            ))  # fmt: skip
        if has("share"):
            panels.append(Panel(
                "share", "Variance captured by the released matrix",
                "Share of its trace that lies in the subspace. Noise raises it while rows are few.",
                "releases", (("share", "captured share"),), unit="share",
            ))  # fmt: skip
        if has("angle_1"):
            angles = [f"angle {i}" for i in range(1, self._components + 1)]
            panels.append(Panel(
                "angles", "Angles to the release before",
                "Principal angles between successive released subspaces; the largest says how far it turned.",
                "releases", tuple(zip(facts.ANGLES, angles, strict=False)), log=True, unit="degrees",
            ))  # fmt: skip
        if has("checkpoints"):
            panels.append(Panel(
                "checkpoints", "Checkpoints of the window", "How many past sums the sliding window keeps.",
                "releases", (("checkpoints", "checkpoints"),), unit="count",
            ))  # fmt: skip
        return panels

    def more(self) -> dict[str, Any]:
        latest, parameters = self._latest, self._parameters
        shown: dict[str, Any] = {
            "parameters": [(k, facts.parameter_text(v)) for k, v in parameters.items() if v is not None],
            "lead": "", "guarantee": [], "formal": "", "loadings": None, "motion": None,
        }  # fmt: skip
        if latest is None:
            return shown
        basis = latest.subspace.basis
        self._drawn = basis if self._drawn is None else signs_like(basis, self._drawn)
        name = parameters.get("processor", "The algorithm")
        at = f"from row {facts.grouped(self._first_t)} to row" if latest.t > self._first_t else "at row"
        return shown | {
            "lead": (
                f"{facts.centered_text(latest)} {name} read rows of {facts.grouped(latest.n_features)} numbers, scaled "
                f"into the ball of radius {latest.row_norm:g}, and released a {latest.n_components}-dimensional "
                f"subspace {at} {facts.grouped(latest.t)}."
            ),
            "guarantee": facts.in_words(latest.guarantee),
            "formal": str(latest.guarantee),
            "loadings": {
                **facts.loadings(latest, self._drawn, self._estimates()),
                "heads": component_rows(components_of(latest, self._estimates())[: facts.COMPONENTS]),
            },
            "motion": self._motion(latest),
        }

    def _motion(self, latest: Release) -> list[dict[str, Any]] | None:
        """Paths of the features' axes in the plane of the latest release, as points; None with one release."""
        last = latest.subspace.basis
        same = [basis for basis in self._places.items if basis.shape == last.shape]
        if same and same[-1] is last:
            same.pop()
        if not same or not last.shape[1]:
            return None
        bases = np.array([*same, last])
        names, ways = feature_names(latest.features, len(last)), trails(bases).round(3)
        return [{"feature": names[i], "points": ways[:, i].tolist()} for i in moving(bases)]

    def _interval_of(self, release: Release) -> Sequence[float]:
        self._regret = PrivateRegretRecord.of(release)
        return _interval(self._regret)


def _interval(record: PrivateRegretRecord) -> Sequence[float]:
    return (record.t, *record.average)
