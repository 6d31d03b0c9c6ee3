"""What a store tells without its key: status, releases, a copy. Safe while the run goes on."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streampca.errors import BadParameter, StoreCorrupt
from streampca.release import Release
from streampca.store.config import load
from streampca.store.database import Database
from streampca.store.files import is_locked, sync_folder, told_plainly
from streampca.store.records import release_of


def stored_releases(database: Database) -> Iterator[Release]:
    """The releases of a run, in order. Publishable."""
    features = features_of(database)
    for fields in database.releases():
        yield release_of(fields, features)


def features_of(database: Database) -> tuple[str, ...] | None:
    """Names of the features."""
    features = load(config_text(database), build=False)["features"]
    return None if features is None else tuple(features)


def config_text(database: Database) -> str:
    """The configuration of the run, for `config.load`."""
    text = database.get("config")
    if not isinstance(text, str):
        raise StoreCorrupt(f"{database.path} holds no configuration; restore the newest copy")
    return text


def status(path: Path) -> dict[str, Any]:
    """How a run stands. Curator only: the number of rows may not be public."""
    database = Database(str(path), write=False)
    try:
        run, progress = database.run(), database.progress
        config = load(config_text(database), build=False)
        return {
            "run": run["run"],
            "schema": database.version,
            "algorithm": repr(config["processor"]),
            "guarantee": run["guarantee"],
            "rows": progress.rows,
            "next_row": progress.rows + 1,
            "releases": progress.releases,
            "rows_in_snapshot": progress.snapshot,
            "rows_to_replay": progress.rows - progress.snapshot,
            "bytes": sum(p.stat().st_size for p in (path, path.with_name(path.name + "-wal")) if p.exists()),
            "running": is_locked(path.with_name(path.name + ".lock")),
        }
    finally:
        database.close()


def backup(path: Path, to: Path) -> int:
    """Copy a database consistently, also while the run goes on; return the rows in it. The key stays where it is.

    Raises
    ------
    BadParameter
        If the target exists.
    """
    if to.exists():
        raise BadParameter(f"{to} exists; give another name: a backup never overwrites one")
    source = Database(str(path), write=False)
    try:
        source.run()
        part = to.with_name(to.name + ".part")
        with told_plainly(to):
            part.unlink(missing_ok=True)
            os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            target = sqlite3.connect(part, isolation_level=None)
            try:
                source.db.backup(target)
                (bad,) = target.execute("PRAGMA quick_check").fetchone()
                target.execute("PRAGMA journal_mode = DELETE")
            except BaseException:
                target.close()
                part.unlink(missing_ok=True)
                raise
            target.close()
            if bad != "ok":
                part.unlink()
                raise StoreCorrupt(f"{path} is damaged ({bad}); restore the newest copy")
            handle = os.open(part, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)
            os.link(part, to)
            part.unlink()
            sync_folder(to)
        copied = Database(str(to), write=False)
        try:
            return copied.progress.rows
        finally:
            copied.close()
    finally:
        source.close()


def published_parameters(database: Database) -> dict[str, Any]:
    """The parameters of a run that may be published; never the key or a seed, which are not in the database."""
    config = load(config_text(database), build=False)
    algorithm, bounds = config["processor"], config["bounds"]
    if isinstance(bounds, dict):
        bounds = [[float(bounds[name][side]) for name in config["features"] or ()] for side in (0, 1)]
    elif bounds is not None:
        bounds = [np.asarray(side, dtype=np.float64).tolist() for side in bounds]
    return {
        "processor": algorithm.name,
        **{
            name: value if isinstance(value, (int, float, str, bool, type(None))) else repr(value)
            for name, value in algorithm.parameters.items()
        },
        "row_norm": config["row_norm"],
        "center": config["center"],
        "bounds": bounds,
    }
