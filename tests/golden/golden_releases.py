"""Golden releases: a digest of what each case releases, so that a refactoring cannot change a bit unseen.

``python tests/golden/golden_releases.py --why "REASON"`` records cases that are new or have changed, and keeps the
reason in the file. Names of cases after it remove those, which no longer exist, and record nothing.

A case has three digests. *Words* covers row numbers and packed noisy Gram matrices, and *facts* the details that are
no floats; both have the same bits on every machine. *Spans* covers bases and what is computed from them. LAPACK rounds
these differently on other processors, so they are compared on the build that recorded them (``build`` of a case, a
place in ``builds``); elsewhere, the last projector is compared as numbers.
"""

import json
import pickle
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

import golden_cases as cases
import numpy as np
import scipy
import threadpoolctl
from cyclopts import App

import streampca as sp
from streampca import _native
from streampca.privacy.outlet import NoiseSource

FILE = Path(__file__).with_name("golden.json")


@contextmanager
def labelled(name: str) -> Iterator[None]:
    begin = NoiseSource.__init__

    def renamed(self: NoiseSource, randomness: sp.Randomness, *label: object, start: bytes | None = None) -> None:
        begin(self, randomness, "golden", name, start=start)

    with mock.patch.object(NoiseSource, "__init__", renamed):
        yield


def released(name: str, *, interrupted: bool = False) -> list[sp.Release]:
    with labelled(name):
        if name in cases.MECHANISMS:
            made, rows = cases.MECHANISMS[name]
            return [made().release(rows, seed=cases.SEED, row_norm=1.0)]
        algorithm, options = cases.STREAMS[name]
        rows, half = cases.gaps() if name.startswith("cells") else cases.rows(), cases.HALF
        made = algorithm()
        stream = sp.Stream(made, seed=cases.SEED, **options)
        releases = stream.push_many(rows[:half], **cases.whose(made, 0, half)).releases
        if interrupted:
            stream = pickle.loads(pickle.dumps(stream))
        releases = releases + stream.push_many(rows[half:], **cases.whose(made, half, len(rows))).releases
        last = stream.finish()
        return releases if last is None else [*releases, last]


def digest(name: str, releases: list[sp.Release]) -> dict[str, Any]:
    words, spans, facts = sha256(), sha256(), sha256()
    for release in releases:
        words.update(b"%d" % release.t)
        if release.packed is not None:
            (spans if name in cases.BY_LAPACK else words).update(release.packed.tobytes())
        if release.smoothed is not None:
            spans.update(release.smoothed.tobytes())
        spans.update(release.subspace.basis.tobytes())
        spans.update(repr(sorted((key, np.asarray(value).tolist()) for key, value in release.details.items())).encode())
        whole = {key: value for key, value in release.details.items() if np.asarray(value).dtype.kind in "biU"}
        facts.update(repr(sorted(whole.items())).encode())
    last = releases[-1]
    return {
        "releases": len(releases),
        "words": words.hexdigest()[:32],
        "spans": spans.hexdigest()[:32],
        "facts": facts.hexdigest()[:32],
        "noise_std": None if last.noise_std is None else float(f"{last.noise_std:.12g}"),
        "projector": [float(f"{value:.9f}") for value in np.diag(last.subspace.projector)],
    }


def build() -> dict[str, str]:
    kernels = {info.get("architecture", "") for info in threadpoolctl.threadpool_info() if info["user_api"] == "blas"}
    loops = [name for name, on in np._core._multiarray_umath.__cpu_features__.items() if on]
    versions = {"numpy": np.__version__, "scipy": scipy.__version__, "machine": platform.machine()}
    return {"blas": " ".join(sorted(kernels)), "loops": " ".join(loops), **versions}


def read() -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads(FILE.read_text())
    return recorded


def main(*retired: str, why: str) -> None:
    """Record cases that are new or have changed, or remove cases, with the reason."""
    file = read() if FILE.exists() else {"builds": [], "cases": {}, "changes": []}
    changed, here = [], build()
    for name in retired:
        del file["cases"][name]
    if not retired:
        file["builds"] += [] if here in file["builds"] else [here]
        place = file["builds"].index(here)
        _native.use(False)
        with threadpoolctl.threadpool_limits(1, user_api="blas"):
            for name in (*cases.STREAMS, *cases.MECHANISMS):
                found = {**digest(name, released(name)), "build": place}
                before = file["cases"].get(name, {})
                # Bases of another build are left as they are if everything with equal bits on all builds is equal.
                parts = ("releases",) if name in cases.BY_LAPACK else ("releases", "words", "facts")
                names = list(found) if before.get("build") == place else parts
                # Releases without a Gram matrix show a change in their bases only, which are compared as numbers.
                same = name in cases.BY_LAPACK or np.allclose(
                    before.get("projector", 2.0), found["projector"], atol=1e-6
                )
                if not same or any(before.get(part) != found[part] for part in names):
                    changed.append(name)
                    file["cases"][name] = found
    if changed or retired:
        file["changes"].append({"why": why, "cases": sorted(changed), "retired": sorted(retired)})
    FILE.write_text(json.dumps(file, indent=1) + "\n")
    print(f"{len(changed)} cases recorded, {len(retired)} retired, {len(file['cases'])} in all")


if __name__ == "__main__":
    App(default_command=main)()
