"""Break a call off at each of its lines in turn, for tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


def every_line(work: Callable[[], object], *files: str, step: int = 1) -> Iterator[int]:
    """Call ``work`` again and again, with a KeyboardInterrupt at one line of these files more each time.

    Yields the number of the line after each call that was broken off; ends once a call is not. ``files`` are ends of
    names of files; one in ``step`` lines is tried.
    """
    number = step
    while _broken_off(work, files, number):
        yield number
        number += step


def _broken_off(work: Callable[[], object], files: tuple[str, ...], number: int) -> bool:
    seen = 0

    def line(_: FrameType, event: str, __: Any) -> Any:
        nonlocal seen
        if event == "line":
            seen += 1
            if seen == number:
                raise KeyboardInterrupt
        return line

    def call(frame: FrameType, _: str, __: Any) -> Any:
        code, caller = frame.f_code, frame.f_back
        finaliser = "__del__" in (code.co_name, caller and caller.f_code.co_name)  # what it raises goes nowhere
        return line if seen < number and code.co_filename.endswith(files) and not finaliser else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return seen >= number  # it was swallowed, as by a suppress()
