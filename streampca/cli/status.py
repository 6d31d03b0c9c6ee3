"""``streampca status``."""

from __future__ import annotations

from pathlib import Path


def status(store: Path, /) -> int:
    """Tell how a durable run stands. Needs no key, changes nothing, and may be used while the run goes on.

    Parameters
    ----------
    store
        Database of the run.
    """
    from streampca.privacy.guarantee import Guarantee
    from streampca.store.reading import status as read

    facts = read(store)
    facts["guarantee"] = str(Guarantee.from_dict(facts["guarantee"]))
    for name, value in facts.items():
        print(f"{name + ':':<18} {value}")
    return 0
