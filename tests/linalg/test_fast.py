"""When compiled kernels are loaded: with the first row, so that a process uses the same ones throughout."""

import subprocess
import sys

import pytest

from streampca.linalg import fast

NOT_YET = """
import sys, streampca
from streampca.linalg import fast
assert "numba" not in sys.modules
{before}
assert (fast.kernels is not None) == {loaded}
assert ("numba" in sys.modules) == {loaded}
"""


@pytest.mark.parametrize(
    ("before", "loaded"),
    [("", True), ("fast.use(False)", False), ("sys.modules['numba'] = None; fast.load.cache_clear()", False)],
)
def test_they_are_loaded_when_first_read_where_there_is_numba(before, loaded):
    pytest.importorskip("numba")
    if "numba" in before:
        before += "; assert fast.use(True) is False; del sys.modules['numba']"
    if "use(False)" in before:
        before += "; sys.modules.pop('numba', None)"
    subprocess.run([sys.executable, "-c", NOT_YET.format(before=before, loaded=loaded)], check=True)


def test_what_was_on_is_told():
    before = fast.use(False)
    assert fast.use(True) is False
    assert fast.use(before) is (fast.load() is not None)
