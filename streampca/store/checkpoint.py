"""What a stream is made of, and where it stands: out of it, and back into it.

Curator only: all of it depends on raw rows.
"""

from __future__ import annotations

from typing import Any

from streampca.errors import BadParameter, StoreCorrupt
from streampca.private_regret import PrivateRegret
from streampca.regret import RegretLog
from streampca.release import Release
from streampca.store.keys import RunKey
from streampca.stream import Stream


def config_of(stream: Stream) -> dict[str, Any]:
    """The public configuration of a stream, without its key."""
    gate, log, private = stream._gate, stream._log, stream._private_log
    return {
        "processor": stream._processor,
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


def stream_of(config: dict[str, Any], key: RunKey, kind: type[Stream]) -> Stream:
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
        stream._gate.fix(None, config["n_features"])
    except (BadParameter, KeyError, TypeError) as problem:
        raise StoreCorrupt(
            f"the configuration of the run is refused ({problem}); open it with the version that wrote it"
        ) from problem
    stream._randomness.is_seeded = key.seeded
    return stream


def state_of(stream: Stream) -> dict[str, Any]:
    """Where a stream stands: arrays and scalars, copied. As secret as the rows."""
    log, private = stream._log, stream._private_log
    return {
        "processor": stream._processor.state(),
        "bad_rows": stream._gate.bad_rows,
        "release": None if stream._release is None else stream._release.t,
        "regret": None if log is None else log.state(),
        "private_regret": None if private is None else private.state(),
    }


def restore(stream: Stream, state: dict[str, Any], release: Release | None) -> None:
    """Put a stream that has seen no row where `state_of` found one. ``release`` is its latest."""
    try:
        stream._start()
        stream._processor.restore(state["processor"])
        stream._gate.bad_rows = state["bad_rows"]
        stream._release, stream._scoring = release, None
        if stream._log is not None:
            stream._log.restore(state["regret"])
        if stream._private_log is not None:
            stream._private_log.restore(state["private_regret"], release)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise StoreCorrupt(
            f"the snapshot does not fit the configuration ({problem}); open it with the version that wrote it"
        ) from problem
