"""Read a store while its run continues: status, parameters, a copy and checks. Only `verify` needs the key."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

from streampca.errors import UsageError
from streampca.store.config import load, public_parameters
from streampca.store.database import SCHEMA, Database, plain_errors
from streampca.store.keys import read_key
from streampca.store.records import damaged
from streampca.store.recovery import check_key, check_lineage, rebuild
from streampca.store.witness import beside, is_locked, peek, sync_folder
from streampca.stream.stream import Stream


def check_witness(path: Path, witness: Path | None = None) -> str:
    """Compare a store with its witness, and return the result as a sentence. `StoreForkedError` if rows are missing."""
    # Damage to the database cannot change the witness. Where it holds rows that the store lacks, the last commits are
    # gone, or the store is another copy.
    where = beside(path, ".witness") if witness is None else witness
    with closing(Database(str(path), write=False)) as database:
        # Before the rows are counted: a running writer notes a commit after it.
        seen = peek(where, database.fact("run")["run"])
        if seen is None:
            return f"{where} remembers nothing; commits missing from the end could not be seen"
        check_lineage(database, seen, f"the witness {where}")
    return f"{where} remembers row {seen[0]}: no commit is missing"


def status(path: Path) -> dict[str, Any]:
    """Return the status of a run. Curator only: the number of rows may be secret."""
    with closing(Database(str(path), write=False)) as database:
        run, progress = database.fact("run"), database.progress
        config = load(database.fact("config"))
    return {
        "run": run["run"], "schema": SCHEMA, "algorithm": repr(config["algorithm"]), "guarantee": run["guarantee"],
        "rows": progress.rows, "next_row": progress.rows + 1, "releases": progress.releases,
        "rows_in_snapshot": progress.snapshot, "rows_to_replay": progress.rows - progress.snapshot,
        "bytes": sum(file.stat().st_size for file in (path, beside(path, "-wal")) if file.exists()),
        "running": is_locked(beside(path, ".lock")),
    }  # fmt: skip


def backup(path: Path, to: Path) -> int:
    """Copy a database consistently, also while the run continues, but not the key. Return the number of its rows."""
    if to.exists():
        raise UsageError(f"{to} exists. Name another file: a backup overwrites none")
    with closing(Database(str(path), write=False)) as source, plain_errors(to):
        source.fact("run")
        part = beside(to, ".part")
        part.unlink(missing_ok=True)
        # Created here, because SQLite would give it the permissions of the umask.
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            # A consistent copy that SQLite builds anew from the contents, so that damaged pages raise.
            source.db.execute("VACUUM INTO ?", (str(part),))
            with part.open("rb") as file:
                os.fsync(file.fileno())
            os.link(part, to)  # unlike a rename, fails if the target exists by now
        finally:
            part.unlink(missing_ok=True)
        sync_folder(to)
    with closing(Database(str(to), write=False)) as copied:
        return copied.progress.rows


def published_parameters(database: Database) -> dict[str, Any]:
    """Return the publishable parameters of a run. Neither key nor seed is in the database."""
    config = load(database.fact("config"))
    bounds = config["bounds"]
    # A mapping lists the features in any order; published bounds are in that of the features.
    if isinstance(bounds, dict):
        bounds = [[float(bounds[name][side]) for name in config["features"] or ()] for side in (0, 1)]
    return public_parameters(config["algorithm"], row_norm=config["row_norm"] or 1.0, bounds=bounds)


def verify(path: Path, passphrase: str | None = None) -> int:
    """Check every page, every release and a replay of the rows since the snapshot. Return the number of these rows."""
    with closing(Database(str(path), write=False)) as database, plain_errors(path):
        database.db.execute("BEGIN")  # one view, while the run may continue
        found = database.first("PRAGMA integrity_check(1)")
        if found != ("ok",):
            raise damaged(f"{path} is damaged ({found})")
        key = read_key(beside(path, ".key"), passphrase)
        check_key(database, key)
        for _release in database.releases():  # also those before the snapshot
            pass
        rebuild(database, key, Stream)
        return database.progress.rows - database.progress.snapshot
