"""The command line: ``streampca``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

#: Exit codes: bad input; a failed expectation; and 128 + signal number for an interrupted run.
BAD_INPUT = 2
FAILED = 1

#: Remedies are worded for the library; here they are options.
_OPTIONS = (
    ("missing='nan', and Stream(on_bad_row='zero')", "--on-bad-row zero"),
    ("on_bad_row='zero'", "--on-bad-row zero"),
    ("use horizon=None", "leave out --horizon"),
    ("pass horizon=,", "pass --horizon,"),
    ("leave the column out with columns=", "choose others with --columns "),
    ("bounds= ", "--bounds "),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Bad input costs one line, never a traceback."""
    # One BLAS thread, before numpy is first imported: more only get in each other's way on small matrices.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    from cyclopts import CycloptsError

    from streampca.cli.app import app
    from streampca.errors import StreamPCAError
    from streampca.linalg.threads import one_blas_thread

    one_blas_thread()  # where numpy was there before

    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except (CycloptsError, StreamPCAError) as problem:
        return _fail(str(problem))
    except BrokenPipeError:  # whoever read our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except ModuleNotFoundError as problem:  # an optional part that is not installed
        if (problem.name or "").startswith("streampca"):
            raise
        return _fail(f"this needs the package {problem.name}, which is not installed")
    except OSError as problem:
        return _fail(f"{problem.filename}: {problem.strerror}" if problem.filename else str(problem))
    except KeyboardInterrupt:
        return 130
    return code if isinstance(code, int) else 0


def _fail(message: str) -> int:
    for library, option in _OPTIONS:
        message = message.replace(library, option)
    print(f"streampca: {' '.join(message.split())}", file=sys.stderr)
    return BAD_INPUT
