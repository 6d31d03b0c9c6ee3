"""The face that may be published: made of releases, and of nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streampca.dashboard.align import signs_like
from streampca.dashboard.board import Board, Fact, Panel
from streampca.dashboard.table import Cell, Table
from streampca.dashboard.words import as_dicts, in_words, summary
from streampca.errors import BadParameter
from streampca.linalg.types import FloatArray
from streampca.private_regret import PrivateRegretRecord
from streampca.release import Release

#: Components drawn, features listed, and features up to which a Gram matrix is worth unpacking for a picture.
SHOWN, LISTED, LARGE = 6, 24, 1000

_VALUES = tuple(f"value_{i}" for i in range(1, SHOWN + 1))
_ANGLES = tuple(f"angle_{i}" for i in range(1, SHOWN + 1))
_RELEASES = ("t", *_VALUES, "noise", "share", *_ANGLES, "checkpoints", "sketch_error")


class PublicBoard(Board):
    """Everything on it is a function of the releases it was given: post-processing, under their guarantee.

    Nothing else can get in: it takes `Release` and `PrivateRegretRecord` objects
    and holds no stream, no processor and no exact regret.

    Parameters
    ----------
    title : head of the page. Public.
    parameters : public parameters of the run, such as the header of a releases file holds.
    """

    def __init__(self, title: str = "streampca", parameters: Mapping[str, Any] | None = None) -> None:
        super().__init__(title)
        self._parameters = dict(parameters or {})
        self._releases = Table(_RELEASES)
        self._intervals = Table(("t", "low", "high"))
        self._before: Release | None = None
        self._latest: Release | None = None
        self._regret: PrivateRegretRecord | None = None
        self._count = 0
        self._shown = 0
        self._own_records = False
        self._drawn: FloatArray | None = None
        self._only_private = False
        self.is_private = True  #: False once a release came that promises nothing, as those of `Oja` do

    def only_private(self) -> None:
        """Refuse releases that promise nothing from now on: the page is published.

        Raises
        ------
        BadParameter
            If there are any already.
        """
        if not self.is_private:
            raise BadParameter("these releases have no privacy guarantee and may not be published")
        self._only_private = True

    @property
    def face(self) -> str:
        """``"public"``."""
        return "public"

    def describe(self, parameters: Mapping[str, Any]) -> None:
        """Take the public parameters of the run, and a title from them."""
        with self.lock:
            if self._parameters != dict(parameters):
                self._parameters = dict(parameters)
                if "processor" in parameters:  # not the name of a file, which may tell too much
                    k = parameters.get("n_components")
                    self.title = f"streampca · {parameters['processor']}" + (f", k = {k}" if k else "")
                self.changed()

    def add(self, releases: Sequence[Release]) -> None:
        """Take in releases, in order.

        Raises
        ------
        BadParameter
            If one is something else.
        """
        with self.lock:
            for release in releases:
                if type(release) is not Release:
                    raise BadParameter(f"{type(release).__name__} is not a Release; only releases may be published")
                self.is_private = self.is_private and release.guarantee.is_private
                if self._only_private:
                    self.only_private()
                self._before, self._latest = self._latest, release
                self._count += 1
                self._shown = max(self._shown, min(SHOWN, release.subspace.n_components if self._due else 0))
                self._releases.offer(self._row)
                if not self._own_records and carries_regret(release):
                    self._intervals.offer(self._interval)
            if releases:
                self.ended = ""
                self.changed()

    def add_regret(self, records: Sequence[PrivateRegretRecord]) -> None:
        """Take in records of the publishable regret, in order, instead of those read off the releases.

        Raises
        ------
        BadParameter
            If one is something else.
        """
        with self.lock:
            for record in records:
                if type(record) is not PrivateRegretRecord:
                    raise BadParameter(f"{type(record).__name__} is not a PrivateRegretRecord: it may not be published")
                if not self._own_records:
                    self._own_records, before = True, self._intervals
                    self._intervals = Table(before.columns)
                    self._intervals.generation = before.generation + 1
                self._regret = record
                self._intervals.offer(lambda record=record: (record.t, *record.average))  # type: ignore[misc]
                self.changed()

    def end(self, how: str = "The run has ended") -> None:
        """Say that nothing more will come; the last release is shown whatever was thinned out."""
        with self.lock:
            if self._latest is not None and not self.ended:
                if _last_t(self._releases) != self._latest.t:
                    self._releases.keep(self._row())
                if (
                    not self._own_records
                    and carries_regret(self._latest)
                    and _last_t(self._intervals) != self._latest.t
                ):
                    self._intervals.keep(self._interval())
            super().end(how)

    # -- what the page reads --------------------------------------------------------

    def tables(self) -> Mapping[str, Table]:
        """The tables, by name."""
        return {"releases": self._releases, "intervals": self._intervals}

    def facts(self) -> list[Fact]:
        """The figures at the head of the page."""
        latest = self._latest
        if latest is None:
            return [Fact("Releases", "none yet")]
        facts = [
            Fact("Rows seen at the latest release", spaced(latest.t)),
            Fact("Releases", spaced(self._count)),
            Fact("Privacy spent, by all of them together", summary(latest.guarantee)),
        ]
        if self._regret is not None:
            low, high = self._regret.average
            facts.append(
                Fact(f"Regret per row, {100 * self._regret.confidence:g} % interval", f"{low:.4g} to {high:.4g}")
            )
        share = self._releases.last[self._releases.columns.index("share")] if self._releases.last else None
        if share is not None:
            facts.append(Fact("Variance captured, by the released matrix", f"{100 * share:.1f} %"))
        return facts

    def panels(self) -> list[Panel]:
        """The charts that there are data for."""
        panels = []
        if self._intervals.rows:
            panels.append(Panel(
                "intervals", "Regret per row: interval",
                "The exact regret lies in the band with the stated confidence, at each time by itself.",
                "intervals", (), ("low", "high", "interval"), unit="squared row norm",
            ))  # fmt: skip
        names = [f"component {i}" for i in range(1, self._shown + 1)]
        if self._has("value_1") and self._latest is not None:
            noise = (("noise", "noise level"),) if self._has("noise") else ()
            panels.append(Panel(
                "values", eigenvalues_of(self._latest),
                "Of the released matrix. What lies under the noise level cannot be told from noise."
                if noise else "As released.",
                "releases", (*zip(_VALUES, names, strict=False), *noise), log=True, unit="squared row norm",
            ))  # fmt: skip
        if self._has("share"):
            panels.append(Panel(
                "share", "Variance captured by the released matrix",
                "Share of its trace that lies in the subspace. Noise raises it while rows are few.",
                "releases", (("share", "captured share"),), unit="share",
            ))  # fmt: skip
        if self._has("angle_1"):
            panels.append(Panel(
                "angles", "Angles to the release before",
                "Principal angles between successive released subspaces; the largest says how far it turned.",
                "releases", tuple(zip(_ANGLES, [f"angle {i}" for i in range(1, self._shown + 1)], strict=False)),
                log=True, unit="degrees",
            ))  # fmt: skip
        if self._has("checkpoints"):
            panels.append(Panel(
                "checkpoints", "Checkpoints of the window", "How many past sums the sliding window keeps.",
                "releases", (("checkpoints", "checkpoints"),), unit="count",
            ))  # fmt: skip
        return panels

    def more(self) -> dict[str, Any]:
        """The guarantee in words, the parameters, and the subspace of the latest release."""
        latest = self._latest
        if latest is not None:
            basis = latest.subspace.basis
            self._drawn = basis if self._drawn is None else signs_like(basis, self._drawn)
        return {
            "parameters": [{"label": k, "value": _shown(v)} for k, v in self._parameters.items() if v is not None],
            "guarantee": [] if latest is None else as_dicts(in_words(latest.guarantee)),
            "loadings": None if latest is None or self._drawn is None else loadings(latest, self._drawn),
        }

    # -- how rows are made ----------------------------------------------------------

    @property
    def _due(self) -> bool:
        return self._releases.wants_next

    def _has(self, column: str) -> bool:
        at = self._releases.columns.index(column)
        return any(row[at] is not None for row in self._releases.rows)

    def _row(self) -> list[float | int | None]:
        release = self._latest
        assert release is not None
        n, k = rows_in(release), release.subspace.n_components
        values = release.eigenvalues
        per_row = [] if values is None else [float(v) / n for v in values[:SHOWN]]
        noise = None
        if release.noise_std is not None and release.has_gram:
            noise = release.noise_std * math.sqrt(2.0 * release.n_features) / n
        angles: list[float] = []
        before = self._before
        if before is not None and before.subspace.basis.shape == release.subspace.basis.shape and k:
            angles = np.degrees(release.subspace.angles(before.subspace))[::-1][:SHOWN].tolist()
        details = release.details
        return [
            release.t, *_padded(per_row), noise, captured_share(release), *_padded(angles),
            _number(details.get("checkpoints")), _number(details.get("sketch_error")),
        ]  # fmt: skip

    def _interval(self) -> list[float | int | None]:
        assert self._latest is not None
        self._regret = PrivateRegretRecord.of(self._latest)
        return [self._latest.t, *self._regret.average]


def carries_regret(release: Release) -> bool:
    """True if an interval for the regret can be read off the release."""
    has_rewards = release.details.get("rewards") is not None
    return has_rewards and release.has_gram and release.noise_std is not None and release.n_features <= LARGE


def eigenvalues_of(release: Release) -> str:
    """What the eigenvalues are divided by, in words."""
    return "Eigenvalues of the decayed sum" if "decay_per_release" in release.details else "Eigenvalues per row"


def rows_in(release: Release) -> int:
    """How many rows the released matrix is of: those of its window or block, or all; 1 if older rows count for less."""
    if "decay_per_release" in release.details:
        return 1
    window, block = release.details.get("window"), release.details.get("rows")
    if isinstance(window, list) and len(window) == 2:
        return max(1, int(window[1]) - int(window[0]) + 1)
    return block if isinstance(block, int) and block > 0 else max(1, release.t)


def captured_share(release: Release) -> float | None:
    """Share of the trace of the released matrix in its subspace; None while noise hides it."""
    if not release.has_gram or release.n_features > LARGE:
        return None
    trace = float(np.trace(release.gram))
    noise = 0.0 if release.noise_std is None else release.noise_std * math.sqrt(release.n_features)
    share = release.subspace.captured(release.gram) / trace if trace > 2.0 * noise else math.inf
    return share if share <= 1.0 else None  # negative eigenvalues of the noise make it more


def loadings(release: Release, basis: FloatArray) -> dict[str, Any]:
    """The released basis, as drawn, a row a feature: the features that weigh most, in their own order."""
    basis = basis[:, :SHOWN]
    names = release.features or tuple(f"feature {i + 1}" for i in range(len(basis)))
    weight = (basis**2).sum(axis=1)
    chosen = sorted(np.argsort(-weight, kind="stable")[:LISTED].tolist())
    return {
        "t": release.t,
        "components": basis.shape[1],
        "rows": [{"feature": names[i], "values": basis[i].tolist()} for i in chosen],
        "left_out": len(basis) - len(chosen),
    }


def spaced(n: int) -> str:
    """A whole number in groups of three digits."""
    return f"{n:,}".replace(",", "\u202f")


def _last_t(table: Table) -> Cell:
    return table.last[0] if table.last else None


def _padded(values: Sequence[float]) -> list[float | None]:
    return [*values, *[None] * (SHOWN - len(values))]


def _number(value: Any) -> Cell:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _shown(value: Any) -> str:
    if isinstance(value, list) and len(value) == 2 and all(isinstance(side, list) for side in value):
        low, high = value
        if len(set(low)) == len(set(high)) == 1:
            return f"{low[0]:g} to {high[0]:g}"
        return ", ".join(f"{a:g} to {b:g}" for a, b in zip(low[:12], high[:12], strict=True)) + (
            ", …" if len(low) > 12 else ""
        )
    return str(value)
