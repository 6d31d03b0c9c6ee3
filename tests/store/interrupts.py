"""Do something at one line of a call, break it off at each of its lines in turn, or do it in a child, for tests."""

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import streampca

PACKAGE = str(Path(streampca.__file__).parent)


def within(
    call: Callable[[], object], inside: Callable[[], object], place: int, *files: str, opcodes: bool = False
) -> bool:
    """Make a call, and another one inside it at one line (or operation) of the package; False if there are fewer.

    ``files`` are ends of names of files, by default all.
    """
    left, kind = place, "opcode" if opcodes else "line"

    def line(_: FrameType, event: str, __: Any) -> Any:
        nonlocal left
        if event == kind:
            left -= 1
            if left == 0:
                inside()
        return line

    def begun(frame: FrameType, _: str, __: Any) -> Any:
        code, caller = frame.f_code, frame.f_back
        finaliser = "__del__" in (code.co_name, caller and caller.f_code.co_name)  # what it raises goes nowhere
        if left <= 0 or finaliser or not (code.co_filename.startswith(PACKAGE) and code.co_filename.endswith(ends)):
            return None
        frame.f_trace_opcodes = opcodes
        return line

    ends, before = files or ("",), sys.gettrace()
    sys.settrace(begun)
    try:
        call()
    finally:
        sys.settrace(before)
    return left <= 0


def every_line(work: Callable[[], object], *files: str, step: int = 1) -> Iterator[int]:
    """Call ``work`` again and again, with a KeyboardInterrupt at one line of these files more each time.

    Yields the number of the line after each call that was broken off; ends once a call is not. One in ``step`` lines is
    tried.
    """

    def interrupt() -> None:
        raise KeyboardInterrupt

    number, reached = step, True
    while reached:
        with suppress(KeyboardInterrupt):
            reached = within(work, interrupt, number, *files)  # True: it was swallowed, as by a suppress()
        if reached:
            yield number
        number += step


def forked(work: Callable[[], object]) -> int:
    """Do something in a child process, which ends with status 0, or 1 if it raised; return its number."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid
