"""Every claim of the registry against an attacker, and every planted bug.

Each honest audit fails with probability at most 0.001 by chance (less for claims that are not
met exactly), about 4 % over all of them; seeds are fixed. Full size, some twenty minutes:
``streampca audit --all --runs 50000``.
"""

import pytest

from streampca.auditing.bugs import BUGS, SLACK_UNDER_HALF_NOISE
from streampca.auditing.cases import CASES
from streampca.auditing.suite import bugs_of, chosen, run_case
from streampca.errors import BadParameter


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_claim_is_not_refuted_and_gaussian_claims_are_nearly_met(case):
    found = run_case(case, 3000 if case.tight else 600, 0.999, seed=1)
    assert found.holds, str(found)
    if case.tight:
        assert found.tightness > 0.85


@pytest.mark.parametrize(
    ("bug", "case"), list(bugs_of(list(CASES.values()))), ids=lambda one: one.name.replace(" ", "-")
)
def test_planted_bug_is_caught(bug, case):
    found = run_case(case, 600, 0.999, seed=1, bug=bug)
    assert not found.holds, str(found)


def test_every_bug_has_its_case_and_every_case_has_a_bug():
    assert {bug.case for bug in BUGS} <= set(CASES)
    assert set(SLACK_UNDER_HALF_NOISE) <= set(CASES)
    # These are too far inside their claims, or show too little; their parts are audited elsewhere.
    without = set(CASES) - {case.name for _, case in bugs_of(list(CASES.values()))}
    assert without == {"PrivateFPL-endless", "PrivateFPL-doubling", "PrivateOja", "DPPCA"}


def test_names_choose_cases():
    assert [case.name for case in chosen(["PrivateFPL-tree"])] == ["PrivateFPL-tree"]
    assert "PrivateFPL-replace" in [case.name for case in chosen(["PrivateFPL"])]
    with pytest.raises(BadParameter, match="no audit named 'PrivateFlp'"):
        chosen(["PrivateFlp"])
