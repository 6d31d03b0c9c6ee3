"""``streampca export``."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def export(
    store: Path,
    /,
    *,
    out: Annotated[Path, Parameter(allow_leading_hyphen=True)] = Path("releases.jsonl"),
    gram: bool = True,
    keep_every: int = 1,
    force: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Write the releases of a durable run, and nothing else: publishable. Needs no key.

    Parameters
    ----------
    store
        Database of the run.
    out
        File of the releases, or - for standard output.
    gram
        Write the private Gram matrix with each release, not only its subspace.
    keep_every
        Write one in so many releases.
    force
        Overwrite an existing file.
    """
    from streampca.cli.outputs import ReleaseFile
    from streampca.privacy.guarantee import Guarantee
    from streampca.release import Terms
    from streampca.store.database import Database
    from streampca.store.reading import features_of, published_parameters, stored_releases

    database = Database(str(store), write=False)
    file = ReleaseFile(out, gram=gram, keep_every=keep_every, force=force)
    try:
        promised = Guarantee.from_dict(database.run()["guarantee"])
        database.db.execute("BEGIN")  # one moment of a run that may go on
        releases = stored_releases(database)
        first = next(releases, None)
        terms = Terms(promised, features=features_of(database)) if first is None else first.terms
        file.header(terms, published_parameters(database))
        for release in () if first is None else chain([first], releases):
            file.write([release])
    finally:
        file.close()
        database.close()
    print(f"{file.written} releases", *([] if str(out) == "-" else ["in", out]), file=sys.stderr)
    return 0
