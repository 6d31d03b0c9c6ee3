"""What a stream is made of: into a store and back, and whether it draws the same noise there and here."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from streampca import admission
from streampca.admission import Admission
from streampca.errors import BadParameter, StoreCorrupt
from streampca.privacy import outlet, randomness
from streampca.private_regret import PrivateRegret
from streampca.processors.base import Algorithm
from streampca.regret import RegretLog
from streampca.store.keys import RunKey
from streampca.stream import Stream


def config_of(stream: Stream) -> dict[str, Any]:
    """The public configuration of a stream, without its key."""
    gate = stream.admission
    log = stream.regret.log if stream.keeps_regret else None
    private = stream.private_regret.config if stream.publishes_regret else None
    return {
        "processor": stream.algorithm,
        "row_norm": gate.row_norm,
        "bounds": gate.bounds,
        "features": gate.features,
        "n_features": gate.n_features,
        "on_bad_row": gate.on_bad_row,
        "center": gate.center,
        "regret": None if log is None else {"every": log.every, "window": log.window},
        "private_regret": None
        if private is None
        else {"confidence": private.confidence, "every": private.every, "rows": private.rows},
    }


def stream_of(config: dict[str, Any], key: RunKey, start: bytes, kind: type[Stream]) -> Stream:
    """A stream that has seen no row, as `config_of` described it."""
    try:
        log, private = config["regret"], config["private_regret"]
        stream = kind(
            config["processor"],
            row_norm=config["row_norm"],
            bounds=config["bounds"],
            features=config["features"],
            on_bad_row=config["on_bad_row"],
            center=config["center"],
            regret=None if log is None else RegretLog(every=log["every"], window=log["window"]),
            private_regret=None if private is None else PrivateRegret(**private),
            key=key.key,
        )
        settled = {"features": config["features"], "n_features": config["n_features"], "processor": None}
        stream.randomness.is_seeded = key.seeded
        stream.start_id = start
        stream.restore(settled, None, copied=False)
    except (BadParameter, KeyError, TypeError) as problem:
        raise StoreCorrupt(
            f"the configuration of the run is refused ({problem}); open it with the version that wrote it"
        ) from problem
    return stream


def label_of(algorithm: Algorithm, gate: Admission) -> dict[str, Any]:
    """All that the noise of a run is a function of beside key, start, fresh bytes and rows. Public."""
    d = gate.admitted_features
    return {
        "noise scheme": outlet.SCHEME,
        "version of the sampler": randomness.VERSION,
        "version of admission": admission.VERSION,
        "algorithm": repr(algorithm.unseeded()),
        "admission": None if d is None else _digest(gate.settings),
        "constants": None if d is None else _digest(algorithm.constants(d)),
    }


def check_label(stored: Any, stream: Stream, path: str) -> None:
    """Raise `StoreCorrupt` unless the noise of a run is the same here as where it was written."""
    here = label_of(stream.algorithm, stream.admission)
    differs = [name for name in here if not isinstance(stored, dict) or stored.get(name) != here[name]]
    if not differs:
        return
    if differs == ["constants"]:
        raise StoreCorrupt(
            f"{path}: the standard deviations and mixes of the noise come out otherwise here than where the run was "
            "written; resume it on that machine, with the versions that wrote it"
        )
    raise StoreCorrupt(
        f"{path} was written by another version of streampca ({', '.join(differs)} differ); "
        "resume it with the version that wrote it"
    )


def _digest(values: tuple[object, ...]) -> str:
    return blake2b(randomness.encoded(values), digest_size=16).hexdigest()
