"""The command line: ``streampca``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Bad input prints one line, never a traceback."""
    # One BLAS thread, before numpy is first imported: more threads only slow small matrices down.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    from streampca.cli.app import run_command

    return run_command(sys.argv[1:] if argv is None else argv)
