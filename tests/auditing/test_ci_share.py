"""CI's share of the audit: fixed by the commit, within its time, with all that a change touches first."""

from pathlib import Path

import pytest
from ci_share import SECONDS, chosen, seconds, touched

from streampca.auditing.cases import generated

ROOT = Path(__file__).parents[2]


def test_equal_commits_choose_equal_cases_and_others_others():
    one, other = chosen("a", []), chosen("b", [])
    assert one == chosen("a", [])
    assert set(one) != set(other)
    assert len(one) > 100
    assert sum(seconds(case) for case in one) <= SECONDS


@pytest.mark.parametrize(
    ("file", "kinds"),
    [
        ("streampca/papers/doubling.py", {"DoublingFPL"}),
        ("streampca/matrix_factorization/window.py", {"SlidingWindowPCA", "PrivateFPL", "DoublingFPL"}),
    ],
)
def test_a_change_touches_the_algorithms_that_import_it(file, kinds):
    assert (ROOT / file).exists()
    assert touched([file]) == (kinds, False)
    quick = {case for case in generated() if case.quick and kinds & set(case.name.split("-"))}
    assert quick <= set(chosen("a", [file])[: len(quick)])


def test_shared_code_touches_everybody_and_files_without_code_nobody():
    assert touched(["streampca/privacy/outlet.py"])[1]
    assert {case for case in generated() if case.quick} <= set(chosen("a", ["streampca/privacy/outlet.py"]))
    assert touched(["docs/conf.py", "tests/stream/test_stream.py"]) == (set(), False)
