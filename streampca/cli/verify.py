"""``streampca verify``."""

from __future__ import annotations

from pathlib import Path


def verify(store: Path, file: Path | None = None, /, *, passphrase_file: Path | None = None) -> int:
    """Check a durable run: every checksum, and a replay that must give the stored releases. Changes nothing.

    A run of an older schema is checked without a replay.

    Parameters
    ----------
    store
        Database of the run.
    file
        The rows, from the first on: all of them are played again, and every release compared. Left out,
        only the rows since the last snapshot are.
    passphrase_file
        File with the passphrase of the key.
    """
    from streampca.cli.durable import passphrase_of
    from streampca.cli.run import open_rows
    from streampca.store.verify import Verification

    check = Verification(store, passphrase_of(passphrase_file))
    try:
        print(f"{check.file()}: every page and every release is whole")
        if not check.can_replay:
            print("written by an older version, with noise of another scheme: its rows are not played again here")
            return 0 if file is None else 2
        print(f"{check.replay()} rows since the snapshot, played again: the same releases")
        if file is not None:
            features, on_bad_row = check.features, check.on_bad_row
            source = open_rows(file, None if features is None else ",".join(features), None, on_bad_row)
            releases = check.replay_all(source)
            print(f"all {check.rows} rows, played again from {file}: the same {releases} releases and state")
    finally:
        check.close()
    return 0
