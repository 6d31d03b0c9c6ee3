"""``streampca backup``."""

from __future__ import annotations

from pathlib import Path


def backup(store: Path, to: Path, /) -> int:
    """Copy a durable run, also while it goes on. The key is not copied: keep a copy of it elsewhere.

    Resume a copy only if the original is lost and nothing newer is left, with
    --moved: it goes on as another run with noise of its own. Where the original
    had released more than is in the copy, both together cost sqrt(2) times mu.

    Parameters
    ----------
    store
        Database of the run.
    to
        The copy. Curator only.
    """
    from streampca.store.reading import backup as copy

    rows = copy(store, to)
    print(f"{to}: {rows} rows. Curator only; its key file is not in it.")
    return 0
