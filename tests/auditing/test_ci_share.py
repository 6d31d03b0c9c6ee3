"""CI's share of the audit: fixed by the commit, within its time, with all that a change touches first."""

from pathlib import Path

import pytest
from ci_share import SECONDS, chosen, modules, seconds, touched

from streampca.auditing.cases import generated

ROOT = Path(__file__).parents[2]
KINDS = {case.name.partition("-")[0] for case in generated()}


def names(commit, files):
    return [case.name for case in chosen(commit, files)]


def test_equal_commits_choose_equal_cases_and_others_others():
    one, other = names("a", []), names("b", [])
    assert one == names("a", [])
    assert set(one) != set(other)
    assert len(one) > 100
    assert sum(seconds(case) for case in chosen("a", [])) <= SECONDS


@pytest.mark.parametrize(
    ("file", "kinds"),
    [
        ("streampca/papers/doubling.py", {"DoublingFPL"}),
        ("streampca/processors/private_oja.py", {"PrivateOja"}),
        ("streampca/papers/wishart.py", {"WishartCovariance"}),
        ("streampca/matrix_factorization/window.py", {"SlidingWindowPCA", "PrivateFPL", "DoublingFPL"}),
        ("streampca/processors/sliding_window.py", {"SlidingWindowPCA"}),
    ],
)
def test_a_change_touches_the_algorithms_that_import_it(file, kinds):
    assert file in {one.relative_to(ROOT).as_posix() for one in ROOT.glob("streampca/*/*.py")}
    assert touched([file]) == (kinds, False)
    quick = {case.name for case in generated() if case.quick and kinds & set(case.name.split("-"))}
    assert quick <= set(names("a", [file])[: len(quick)])


@pytest.mark.parametrize("file", ["privacy/outlet.py", "stream/stream.py", "linalg/lattice.py"])
def test_a_change_of_shared_code_touches_everybody(file):
    assert touched([f"streampca/{file}"])[1]
    assert {case.name for case in generated() if case.quick} <= set(names("a", [f"streampca/{file}"]))


def test_files_without_code_touch_nobody_and_imports_are_followed():
    assert touched(["docs/privacy.md", "tests/stream/test_stream.py"]) == (set(), False)
    assert "streampca/matrix_factorization/blt.py" in modules(ROOT / "streampca/processors/private_fpl.py")
