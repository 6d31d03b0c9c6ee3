"""Reading a store without its key: status, parameters, a copy. Safe while the run goes on."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from streampca.errors import BadParameterError, StoreCorruptError
from streampca.store.config import config_in, public_parameters
from streampca.store.database import SCHEMA, Database, plain_errors
from streampca.store.recovery import check_lineage
from streampca.store.witness import beside, is_locked, peek, sync_folder


def features_of(database: Database) -> tuple[str, ...] | None:
    """Names of the features."""
    features = config_in(database)["features"]
    return None if features is None else tuple(features)


def check_witness(path: Path, witness: Path | None = None) -> str:
    """Compare a store with what its witness remembers, which no damage to the database can change.

    Returns what was found, for people. Raises `StoreForkedError` if the witness remembers rows that are not there: the
    last commits are gone, or this is another copy.
    """
    where = beside(path, ".witness") if witness is None else witness
    with closing(Database(str(path), write=False)) as database:
        seen = peek(where, database.run()["run"])  # before the rows are counted: a commit is noted after it was made
        if seen is None:
            return f"{where} remembers nothing; commits missing from the end could not be seen"
        check_lineage(database, seen, f"the witness {where}")
    return f"{where} remembers row {seen[0]}: no commit is missing"


def kernels_of(database: Database) -> str:
    """Whose kernels made the bases and eigenvalues, and from which row on. Released matrices do not depend on it."""
    return ", ".join(f"{name} from row {row}" for row, name in database.fact("kernels"))


def status(path: Path) -> dict[str, Any]:
    """Status of a run. Curator only: the number of rows may not be public."""
    with closing(Database(str(path), write=False)) as database:
        run, progress = database.run(), database.progress
        config, kernels = config_in(database), kernels_of(database)
    return {
        "run": run["run"],
        "schema": SCHEMA,
        "algorithm": repr(config["processor"]),
        "guarantee": run["guarantee"],
        "rows": progress.rows,
        "next_row": progress.rows + 1,
        "releases": progress.releases,
        "rows_in_snapshot": progress.snapshot,
        "rows_to_replay": progress.rows - progress.snapshot,
        "bytes": sum(file.stat().st_size for file in (path, beside(path, "-wal")) if file.exists()),
        "kernels": kernels,
        "running": is_locked(beside(path, ".lock")),
    }


def backup(path: Path, to: Path) -> int:
    """Copy a database consistently, also while the run goes on; return the rows in it. The key stays where it is.

    Raises
    ------
    BadParameterError
        If the target exists.
    """
    if to.exists():
        raise BadParameterError(f"{to} exists; give another name: a backup never overwrites one")
    with closing(Database(str(path), write=False)) as source, plain_errors(to):
        source.run()
        part = beside(to, ".part")
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            with closing(sqlite3.connect(part, isolation_level=None)) as target:
                source.db.backup(target)
                (bad,) = target.execute("PRAGMA quick_check").fetchone()
                target.execute("PRAGMA journal_mode = DELETE")
            if bad != "ok":
                raise StoreCorruptError(f"{path} is damaged ({bad}); restore the newest copy")
            handle = os.open(part, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)
            os.link(part, to)
        finally:
            part.unlink(missing_ok=True)
        sync_folder(to)
    with closing(Database(str(to), write=False)) as copied:
        return copied.progress.rows


def published_parameters(database: Database) -> dict[str, Any]:
    """The parameters of a run that may be published; never the key or a seed, which are not in the database."""
    config = config_in(database)
    bounds = config["bounds"]
    if isinstance(bounds, dict):
        bounds = [[float(bounds[name][side]) for name in config["features"] or ()] for side in (0, 1)]
    return public_parameters(config["processor"], row_norm=config["row_norm"], center=config["center"], bounds=bounds)
