"""Public facts that the releases of a run share, and the fields of a release about the mean."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

import numpy as np

from streampca.linalg.centering import centered, counted
from streampca.linalg.completion import completing, private_shares
from streampca.linalg.lazy import cached_property
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.release.clear import NoiseLaw

JSON = json.JSONEncoder(allow_nan=False)


@dataclass(frozen=True, eq=False)
class Terms:
    """Public facts that all releases of a run share."""

    guarantee: Guarantee  #: of all releases together
    row_norm: float = 1.0  #: to which rows were clipped; matrices, eigenvalues and noise are in units of its square
    features: tuple[str, ...] | None = None  #: names of the features, in order; None if rows are not named
    middle: FloatArray | None = None  #: (d,) of the map ``(row - middle) * scale`` by public bounds; None without
    scale: FloatArray | None = None  #: (d,) of the same map
    warmup: int = 0  #: number of first rows, which only served to estimate these bounds
    #: Law of the noise in Gram matrices; None if it is Gaussian where a release states its `Release.noise_std`, and not
    #: stated elsewhere.
    noise: NoiseLaw | None = None
    #: Of a run of `PrivateFPL`, what the noise of a difference of its releases follows from: ``name`` of the run,
    #: ``release_every``, ``horizon`` in rows, and ``factorization``, the name of its class, with its parameters in
    #: ``constants``. None for other runs.
    run: Mapping[str, Any] | None = None
    #: Calendar whose periods `Release.t` counts, as ``release_every`` and ``start``; None if it counts rows.
    calendar: Mapping[str, Any] | None = None
    #: Shares of the cells present by which matrices and means are completed (`linalg.completion`): (d,) public ones, or
    #: ``"private"`` where each release has its own. None if nothing was filled, or filled without a correction.
    present: tuple[float, ...] | Literal["private"] | None = None

    def count(self, first: int, last: int) -> float:
        """Return the public number of rows from ``first`` to ``last`` without those of the warm-up; at least 1."""
        # Infinite where no such number is public: with a calendar, and with a unit other than a row.
        is_private = self.calendar is not None or self.guarantee.unit not in ("one row", "none")
        return math.inf if is_private else max(1, last - max(first - 1, self.warmup))

    @cached_property
    def encoded(self) -> dict[str, bytes]:
        values: dict[str, Any] = {"row_norm": self.row_norm, "features": self.features}
        values["guarantee"] = self.guarantee.to_dict()
        if self.middle is not None and self.scale is not None:
            values |= {"middle": self.middle.tolist(), "scale": self.scale.tolist()}
        further = {
            "warmup": self.warmup or None, "noise": self.noise, "run": self.run, "calendar": self.calendar,
            "present": self.present,
        }  # fmt: skip
        values |= {name: value for name, value in further.items() if value is not None}
        return {name: JSON.encode(value).encode() for name, value in values.items()}

    @cached_property
    def mark(self) -> str:
        return blake2b(b"|".join(self.encoded.values()), digest_size=8).hexdigest()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Terms:
        """Read the terms among the JSON values of a release or of a header."""
        features, row_norm = data["features"], float(data["row_norm"])
        # Hazard: the square of a larger norm overflows, and gives an infinite matrix with a finite guarantee.
        if not 1e-150 < row_norm < 1e150:  # as `check_row_norm`
            raise ValueError(f"row_norm={row_norm}: expected a positive finite number.")
        map_ = (data.get("middle"), data.get("scale"))
        middle, scale = (None if each is None else numbers(each, 1.0, *np.shape(each)) for each in map_)
        names = None if features is None else tuple(str(name) for name in features)
        noise = None if data.get("noise") is None else NoiseLaw.read(*data["noise"])
        warmup = int(data.get("warmup", 0))
        run = None if data.get("run") is None else dict(data["run"])
        JSON.encode(run)  # raises where a number is not finite
        calendar = None if data.get("calendar") is None else dict(data["calendar"])
        present = data.get("present")
        if present is not None and present != "private":
            present = tuple(numbers(present, 1.0, len(present)).tolist())
        guarantee = Guarantee.from_dict(data["guarantee"])
        return cls(guarantee, row_norm, names, middle, scale, warmup, noise, run, calendar, present)


def gram_fields(
    packed: FloatArray, std: float | None, terms: Terms, details: Mapping[str, Any], rows: float | None,
    smoothed: FloatArray | None = None, total: float = 1.0,
) -> dict[str, Any]:  # fmt: skip
    """Return the fields of a `Release` from a private Gram matrix, about the mean unless ``rows`` is None."""
    # The matrix, ``rows`` and ``std`` are as for `linalg.centering.centered`; ``smoothed`` estimates its exact value.
    # If the terms have shares of cells present, the matrix is completed: ``"present"`` of the details holds them. With
    # private ones, the numbers of cells present follow the matrix, and ``total`` is the public number of rows. The
    # details gain the private ``"mean"``, ``"count"``, ``"sums"`` and ``"noisy_count"`` (`Centered`), with which the
    # matrix before centering can be computed again, and ``"joint_noise_std"``, the standard deviation of a diagonal
    # entry of its noise, which determines `Release.noise_law`.
    unit, center, present = terms.row_norm, rows is not None and std is not None, None
    if terms.present == "private" and std is not None:
        d = (math.isqrt(8 * packed.size + (17 if center else 9)) - (5 if center else 3)) // 2
        packed, counts = packed[:-d], packed[-d:]
        total = total if rows is None else counted(float(packed[-1]), rows, std)[1]
        present = private_shares(counts, total, std)
        details = {**details, "cells_present": counts.tolist(), "count": total}
    elif terms.present is not None:
        present = np.array(terms.present)
    if present is not None:
        factors = completing(present, center=center)
        packed, smoothed = packed * factors, None if smoothed is None else smoothed * factors
        details = {**details, "present": present.tolist()}
    if rows is None or std is None:
        if present is not None and std is not None:
            details, std = {**details, "joint_noise_std": std * unit**2}, None
        return {"packed_gram": packed, "noise_std": std, "packed_smoothed": smoothed, "details": details}
    about = centered(packed, rows, std, present=present)
    if smoothed is not None:
        noise = details["smoothed_noise_std"] / unit**2
        smoothed = centered(smoothed, rows, noise, debias=False, present=present).packed
    law = {
        "mean": (about.mean * unit).tolist(), "count": about.divisor, "sums": (about.sums * unit).tolist(),
        "noisy_count": about.noisy_count, "joint_noise_std": std * unit**2,
    }  # fmt: skip
    return {
        "packed_gram": about.packed, "noise_std": about.noise_std if present is None else None,
        "packed_smoothed": smoothed,
        "details": {**details, "centered": True, **law},
    }  # fmt: skip


def numbers(values: Any, unit: float, *shape: int) -> Any:
    """Convert JSON values to a finite array of a shape, divided by ``unit``; None stays None."""
    if values is None:
        return None
    array = np.asarray(values, dtype=np.float64) / unit
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"expected finite numbers of shape {shape}.")
    return array
