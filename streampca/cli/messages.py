"""Consoles, and messages of the library on standard error, with options in place of parameters.

Standard output and standard error may be files that others read, so exact figures of the rows go to a terminal only.
`isatty()` of the stream decides. The environment does not: with FORCE_COLOR, rich regards a file as a terminal.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import fields
from typing import IO, TYPE_CHECKING

from streampca.cli.options import ReadSettings, RunOptions
from streampca.errors import SCALE, BadParameterError, MissingParametersError, UsageError, printable

if TYPE_CHECKING:
    from rich.console import Console

#: Parameters that have options of their own, and those of `--read`.
FLAGS = frozenset(field.name for field in fields(RunOptions)) | {"limit"}
READ = frozenset(field.name for field in fields(ReadSettings))
#: Forms of the options of the scale.
_SCALES = (
    'Write --bounds lo:hi, --bounds name=lo:hi,..., --bounds FILE with JSON {"name": [lo, hi], ...}, --bounds private, '
    "or --row-norm LENGTH. `streampca check FILE` lists the columns."
)
#: Phrases of the library about its parameters for which the command line has other words.
_OTHERWISE = {
    ", or PrivateSketch, which has none": "",
    "use horizon=None": "omit --horizon",
    "bounds= ": "--bounds ",
    "correct=False": "--set missing.correct=no",
    "missing_rates": "--set missing.rates",
    "`Stream(..., store=Store(path))`": "`streampca run FILE ... --store PATH`",
    "Stream.resume(store), or Fleet.resume(path)": "`streampca resume STORE`",
    "Push rows, or omit unit=": "Omit --processes",
    "with `columns`, or in `bounds`": "with --columns (or --columns all), or in --bounds",
}
#: ``name=value`` with a word before the period, a quoted text or a list as value, unless it follows an option already.
_PARAMETER = re.compile(r"(?<!--read )(?<!--set )\b([a-z_]+)=('[^']*'|\['.*?'\]|\[\.\.\.\]|[^\s;,()'\[\]]*(?<!\.))")


class SpentError(Exception):
    """The source or the disk failed after the first row of a command, as ``problem`` says."""

    def __init__(self, problem: Exception) -> None:
        self.problem = problem


def console(stream: IO[str]) -> Console:
    """Return a console of rich without markup. Off a terminal, every fact is one line."""
    from rich.console import Console  # loads slowly

    terminal = stream.isatty()
    return Console(
        file=stream, force_terminal=terminal, force_interactive=terminal, soft_wrap=not terminal, markup=False,
        highlight=False,
    )  # fmt: skip


def terminal_width() -> int:
    """Return the columns of the terminal; 100 where there is none."""
    return shutil.get_terminal_size((100, 24)).columns


def say(line: str) -> None:
    """Print a line on standard error; in a terminal, broken between words."""
    if sys.stderr.isatty():
        line = textwrap.fill(line, terminal_width(), break_long_words=False, break_on_hyphens=False)
    print(line, file=sys.stderr)


def caution(texts: Iterable[str]) -> None:
    """Print warnings of the library on standard error."""
    for text in texts:
        say(f"warning: {printable(in_flags(text))}")


def in_flags(problem: object, argv: Iterable[str] = ()) -> str:
    """Return a message of the library with options in place of parameters; ``argv`` has those of ``--set``."""
    if isinstance(problem, MissingParametersError):
        words = problem.rendered(lambda name: _option(name, "") if name in FLAGS else f"--set {name}")
        return f"{words} {_SCALES}" if words == SCALE else words
    if isinstance(problem, BadParameterError):
        name, advice = problem.parameter, problem.advice and f". {problem.advice}"
        keys = (word.partition("=")[0] for word in argv if "=" in word and name not in READ)
        name = next((f"--set {key}" for key in keys if f".{key}".endswith(f".{name}")), name)
        subject = _option(name, problem.value or "").removesuffix("=")
        problem = UsageError(f"{subject}: expected {problem.expected}{advice}")
    message = str(problem)
    for library, option in _OTHERWISE.items():
        message = message.replace(library, option)
    return _PARAMETER.sub(lambda found: _option(found[1], found[2]), message)


def _option(name: str, value: str) -> str:
    if name not in FLAGS | READ:
        return f"{name}={value}"
    if value.startswith("["):  # ['age', 'weight (kg)'] or [...]
        value = shlex.quote(re.sub("'?, '?", ",", value[1:-1].strip("'")))
    else:
        value = {"True": "yes", "False": "no"}.get(value, value.strip("'"))
    if name in READ:
        return f"--read {name}={value}"
    return f"{'-k' if name == 'n_components' else '--' + name.replace('_', '-')}{value and ' '}{value}"
