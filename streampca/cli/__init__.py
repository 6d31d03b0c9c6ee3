"""The command line: ``streampca``."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import sys
import textwrap
import warnings
from collections.abc import Sequence

#: Exit code of bad input. An expectation that fails gives 1, an interrupted run 128 + the number of the signal.
BAD_INPUT = 2

#: The words before options that a message says to add.
ADD = "All at once, by what the first rows hold: add "

#: What the library says of its parameters, where the command line differs by more than a name.
_OTHERWISE = {
    "missing='nan', and Stream(on_bad_row='zero')": "--on-bad-row zero",
    ", here and to Stream,": "",
    "columns=[0, 1, ...]": "from tail -n +2 FILE | streampca run - --no-header --columns 1,2,...",
    "header=False or names=[...]": "--no-header or --names a,b,...",
    "header=True": "--header",
    "with header=False": "with --no-header",
    "names=['a', 'b', ...]": "--names a,b,...",
    "pass max_bytes= if that is meant": "decompress it into a pipe if that is meant",
    ", or PrivateOja with regret=None, which has none": "",
    "use horizon=None": "leave out --horizon",
    "bounds= ": "--bounds ",
}
_TEXT = r"""'(?:\\.|[^'\\])*'"""
_PARAMETER = re.compile(rf"""\b([a-z_]+)=({_TEXT}|\[(?:{_TEXT}|"[^"]*"|[^]'"])*\]|[^\s;,()'\[\]]*)""")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Bad input prints one line, never a traceback."""
    # One BLAS thread, before numpy is first imported: more threads only slow small matrices down.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    from cyclopts import CycloptsError

    from streampca.cli.app import app
    from streampca.errors import BudgetExhaustedError, StreamPCAError, StreamPCAWarning

    if "numpy" in sys.modules:  # too late for the environment
        from streampca.linalg.threads import one_blas_thread

        one_blas_thread()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StreamPCAWarning)  # commands print them
            code = app(sys.argv[1:] if argv is None else argv, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except (CycloptsError, StreamPCAError) as problem:
        # What a ledger says was spent is no option.
        return _fail(str(problem) if isinstance(problem, BudgetExhaustedError) else _in_flags(str(problem)))
    except BrokenPipeError:  # the reader of the output is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except ModuleNotFoundError as problem:  # an optional part that is not installed
        if (problem.name or "").startswith("streampca"):
            raise
        return _fail(f"this needs the package {problem.name}, which is not installed: {_install(problem.name or '')}")
    except OSError as problem:
        return _fail(f"{problem.filename}: {problem.strerror}" if problem.filename else str(problem))
    except MemoryError as problem:
        return _fail(f"there is not enough memory ({str(problem) or 'no more'}); choose fewer columns")
    except KeyboardInterrupt:
        return 130
    return code if isinstance(code, int) else 0


def _install(module: str) -> str:
    """The command that installs a module: with the smallest extra that asks for its package, if one does."""
    from importlib.metadata import requires

    module = module.partition(".")[0]
    package = {"sklearn": "scikit-learn"}.get(module, module.replace("_", "-"))
    asked: dict[str, list[str]] = {}
    for requirement in requires("streampca") or ():
        if found := re.fullmatch(r"([\w-]+)[^;]*;.*extra == ['\"](\w+)['\"]", requirement):
            asked.setdefault(found[2], []).append(found[1])
    extras = [extra for extra, packages in asked.items() if package in packages]
    return (
        f"pip install 'streampca[{min(extras, key=lambda e: len(asked[e]))}]'" if extras else f"pip install {package}"
    )


def _fail(message: str) -> int:
    say(f"streampca: {' '.join(message.split())}")
    return BAD_INPUT


def say(line: str) -> None:
    """Print a line on standard error; in a terminal, broken between words, but for options to be copied."""
    from streampca.cli.terminal import is_terminal

    if is_terminal(sys.stderr):
        text, add, options = line.partition(ADD)
        width = shutil.get_terminal_size().columns
        line = textwrap.fill(text + add, width, break_long_words=False, break_on_hyphens=False)
        line += f"\n{options}" if options else ""
    print(line, file=sys.stderr)


def caution(text: str) -> None:
    """Print a warning of the library on standard error, with options in place of parameters."""
    say(f"warning: {_in_flags(text)}")


def _in_flags(message: str) -> str:
    """A message of the library with options in place of parameters."""
    from dataclasses import fields
    from inspect import signature

    from streampca.cli.reading import Reading
    from streampca.cli.run import run

    for library, option in _OTHERWISE.items():
        message = message.replace(library, option)
    options = {*signature(run).parameters, *(field.name for field in fields(Reading))}

    def flag(found: re.Match[str]) -> str:
        name, value = found[1], found[2]
        if name not in options:
            return found[0]
        if value.startswith("["):
            try:
                value = shlex.quote(",".join(map(str, ast.literal_eval(value))))
            except (SyntaxError, ValueError):  # no list of names
                return found[0]
        else:
            value = value.strip("'")
        return f"{'-k' if name == 'n_components' else '--' + name.replace('_', '-')}{value and ' '}{value}"

    return _PARAMETER.sub(flag, message)
