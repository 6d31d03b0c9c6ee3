"""Releases as records: every bit of them, in a fraction of the time and space of JSON.

The releases of a commit go into few records, for they have much in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from streampca.errors import StoreCorrupt
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.release import Release, Terms
from streampca.store.codec import decode, encode

#: One stored release: plain values and arrays.
Fields = Mapping[str, Any]

_AT_ONCE = 2**19  # bytes of working memory, which fit a cache
_GROUP = 2**20  # bytes of releases in a record
_FARTHEST = 900  # no subnormal numbers on the way


class ReleaseRecords:
    """Makes records of releases, in working memory of its own: fresh memory costs more than what is done in it."""

    def __init__(self) -> None:
        self._work = np.empty(0)

    def group(self, releases: Sequence[Release]) -> bytes:
        """Releases as bytes."""
        groups = []
        for _, alike in groupby(releases, key=_kind):
            group = list(alike)
            terms = group[0].terms
            groups.append({
                "guarantee": terms.guarantee.to_dict(),
                "row_norm": terms.row_norm,
                "features": None if terms.features is None else list(terms.features),
                "middle": terms.middle,
                "scale": terms.scale,
                "n_components": group[0].n_components,
                "grams": self._grams([release.packed for release in group if release.packed is not None]),
                "each": [_own(release) for release in group],
            })  # fmt: skip
        return encode(groups)

    def _grams(self, grams: list[FloatArray]) -> FloatArray | dict[str, Any] | None:
        """One a line. On a grid of a power of two: whole numbers of 32 bits, if every bit comes back from them."""
        if not grams:
            return None
        cells = np.empty((len(grams), grams[0].size), dtype=np.int32)
        bits = np.empty(len(grams), dtype=np.int64)
        step = max(1, _AT_ONCE // (16 * max(1, grams[0].size)))
        for start in range(0, len(grams), step):
            some = grams[start : start + step]
            if not self._round(some, cells[start : start + step], bits[start : start + step]):
                return np.stack(grams)
        return {"cells": cells, "bits": bits}

    def _round(self, grams: list[FloatArray], cells: npt.NDArray[np.int32], bits: npt.NDArray[np.int64]) -> bool:
        if self._work.size < 2 * cells.size:
            self._work = np.empty(2 * cells.size)
        values, back = self._work[: 2 * cells.size].reshape(2, *cells.shape)
        np.stack(grams, out=values)
        top = np.maximum(values.max(axis=1, initial=0.0), -values.min(axis=1, initial=0.0))
        np.subtract(np.frexp(top)[1], 31, out=bits)
        if not np.isfinite(top).all() or np.abs(bits).max() > _FARTHEST:
            return False
        np.multiply(values, np.ldexp(1.0, -bits)[:, None], out=back)
        np.copyto(cells, back, casting="unsafe")
        np.multiply(cells, np.ldexp(1.0, bits)[:, None], out=back)
        return np.array_equal(back.view(np.int64), values.view(np.int64))


def in_groups(releases: Sequence[Release]) -> Iterator[list[Release]]:
    """The releases of each record: those of a commit together, up to a size."""
    group: list[Release] = []
    size = 0
    for release in releases:
        group.append(release)
        size += size_of(release)
        if size >= _GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


def size_of(release: Release) -> int:
    """Bytes of its arrays."""
    return sum(array.nbytes for array in (release.packed, release.own_basis, release.own_span) if array is not None)


def _kind(release: Release) -> tuple[Any, ...]:
    terms, size = release.terms, None if release.packed is None else release.packed.size
    shared = id(terms.guarantee), terms.row_norm, terms.features, id(terms.middle), id(terms.scale)
    return *shared, release.n_components, size


def _own(release: Release) -> dict[str, Any]:
    own = {
        "t": release.t,
        "basis": release.own_basis,
        "span": release.own_span,
        "values": release.own_eigenvalues,
        "noise_std": release.own_noise_std,
        "details": release.details or None,
    }
    return {name: value for name, value in own.items() if value is not None}


def fields_of(record: bytes) -> list[Fields]:
    """The releases of a record, in order."""
    groups = decode(record)
    try:
        if isinstance(groups, dict):  # schema 1: one release a record
            return [groups]
        return [fields for group in groups for fields in _fields(group)]
    except (KeyError, TypeError, ValueError) as problem:
        raise _unreadable(problem) from problem


def _fields(group: dict[str, Any]) -> Iterator[Fields]:
    each, grams = group["each"], group["grams"]
    if grams is None:
        grams = [None] * len(each)
    elif isinstance(grams, dict):
        grams = grams["cells"] * np.ldexp(1.0, grams["bits"])[:, None]
    shared = dict(group) if "named" in group else group | {"terms": _terms(group, group["features"])}
    for own, gram in zip(each, grams, strict=True):
        yield {**shared, **own, "gram": gram}


def release_of(fields: Fields, features: tuple[str, ...] | None = None) -> Release:
    """The release, bit for bit. ``features``, those of the run, are needed for records of schemas 1 and 2."""
    try:
        terms = fields.get("terms")
        if terms is None:
            terms = _terms(fields, features if fields["named"] else fields["own_features"])
        return Release(
            t=fields["t"],
            n_components=fields["n_components"],
            terms=terms,
            packed_gram=_array(fields.get("gram")),
            basis=_array(fields.get("basis")),
            span=_array(fields.get("span")),
            eigenvalues=_array(fields.get("values")),
            noise_std=fields.get("noise_std"),
            details=fields.get("details"),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as problem:
        raise _unreadable(problem) from problem


def _terms(fields: Fields, features: Sequence[str] | None) -> Terms:
    names = None if features is None else tuple(features)
    promised = Guarantee.from_dict(fields["guarantee"])
    return Terms(promised, fields["row_norm"], names, _array(fields.get("middle")), _array(fields.get("scale")))


def _array(value: Any) -> FloatArray | None:
    return None if value is None else np.asarray(value, dtype=np.float64)


def _unreadable(problem: Exception) -> StoreCorrupt:
    return StoreCorrupt(f"a release in the store cannot be read ({problem}); restore the newest copy")
