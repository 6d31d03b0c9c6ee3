"""Whether a stream is a terminal, and consoles that print to it.

Standard output and standard error may be files that others read, so exact figures of the rows go to a terminal only.
`isatty()` of the stream decides. The environment does not: rich regards a file as a terminal if FORCE_COLOR or
TTY_COMPATIBLE is set.
"""

from __future__ import annotations

import shutil
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def is_terminal(stream: IO[str]) -> bool:
    """Return True if the stream is a terminal, in any environment."""
    return stream.isatty()


def console(stream: IO[str]) -> Console:
    """Return a console of rich without markup. Off a terminal, every fact is one line."""
    from rich.console import Console  # loads slowly

    terminal = is_terminal(stream)
    return Console(
        file=stream, force_terminal=terminal, force_interactive=terminal, soft_wrap=not terminal, markup=False,
        highlight=False,
    )  # fmt: skip


def terminal_width() -> int:
    """Return the columns of the terminal; 100 where there is none."""
    return shutil.get_terminal_size((100, 24)).columns
