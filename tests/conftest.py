"""The suite takes the path of a plain install; tests of the compiled kernels switch them on."""

import os
import traceback
from collections.abc import Callable

import pytest

from streampca.linalg import fast

fast.use(False)


@pytest.fixture
def in_child() -> Callable[[Callable[[], object]], int]:
    """Does something in a child process and gives its exit status: 0, or 1 if it raised."""

    def status(work: Callable[[], object]) -> int:
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
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    return status
