"""Every claim, with fixed keys; and every planted bug."""

import re
from pathlib import Path

import pytest
from decisions import audit_watched
from planted.bugs import Bug, audit_planted
from planted.edge_bugs import BUGS
from planted.edges import CASES

from streampca.auditing.suite import NUMBERS, audit, audit_named
from streampca.cli import main
from streampca.rows import people

QUICK = [case for case in CASES.values() if case.quick]
#: A mistake is planted in one case; in the others, ``pytest -m long`` plants it.
FIRST = {bug.name: bug for bug in reversed(BUGS)}
PLANTED = [pytest.param(bug, marks=() if FIRST[bug.name] is bug else pytest.mark.long) for bug in BUGS]

#: Cases that are not generated: events of streams, and other entries.
ELSEWHERE = [case for case in QUICK if case.name[0].islower() or case.name.startswith("StabilityHistogram")]


@pytest.mark.ci
@pytest.mark.parametrize("case", ELSEWHERE, ids=lambda case: case.name)
def test_every_part_holds(case):
    rows = audit_watched(case, numbers=NUMBERS["quick"], error=1e-3 / len(QUICK), every=False, seed=1)
    if case.name.startswith("edge-"):  # made for one side of one decision
        rows = [row for row in rows if row.part != "decisions"]
    assert all(row.holds for row in rows), "\n".join(map(str, rows))


@pytest.mark.long
@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_gaussian_claims_are_nearly_seen(case):
    rows = audit(case, mode="standard", false_alarm=1e-3 / len(CASES), seed=1).rows
    assert all(row.holds for row in rows), "\n".join(map(str, rows))
    for row in rows[1:]:
        shares = [share for share in (row.seen, row.accounted) if share is not None]
        assert min(shares) >= 0.95 or row.witness, str(row)


@pytest.mark.ci
@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: f"{bug.name} in {bug.case}".replace(" ", "-"))
def test_planted_bug_is_refuted(bug):
    rows = audit_planted(bug, 1e-3 / len(BUGS), seed=1)
    assert any(row.verdict == "refuted" for row in rows), "\n".join(map(str, rows))


@pytest.mark.ci
@pytest.mark.parametrize("case", ["PrivateFPL-person", "PrivateFPL-person-centered"])
def test_a_weight_in_place_of_its_root_is_not_refuted(case):
    """It shortens rows more than needed, which is no breach."""
    patch = people, "_shrunk", lambda honest: lambda rows, root, further=0: honest(rows, root * root, further)
    rows = audit_planted(Bug("weights without their roots", case, (patch,)), 1e-3, seed=1)
    assert not any(row.verdict == "refuted" for row in rows), "\n".join(map(str, rows))


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.name} in {bug.case}".replace(" ", "-"))
def test_no_verdict_on_a_bug_changes_with_the_salt(bug):
    for salt in range(20):
        assert any(row.verdict == "refuted" for row in audit_planted(bug, 1e-3 / len(BUGS), seed=salt)), salt


@pytest.mark.parametrize(
    ("words", "status", "printed"),
    [
        ("--list", 0, r"\bPrivateFPL\b"),
        ("PrivateFPL-tree --list", 0, r"\bPrivateFPL-tree-every_4-replace-resumed\n"),
        ("WishartCovariance --quick --seed 1", 0, r"audit of 4 rows[^~]*\neverything holds\n"),
        ("WishartCovariance-replace --quick --seed 1 --json", 0,
         r'^\[\{"subject": "WishartCovariance-replace", .*"holds"'),
        ("", 2, ""), ("PrivateFlp", 2, ""),
    ],
)  # fmt: skip
def test_the_command(words, status, printed, capsys):
    assert main(["audit", *words.split()]) == status
    assert re.search(printed, capsys.readouterr().out)


TABLE = re.compile(
    r"\d{4}-\d\d-\d\d, streampca \S+: (quick|standard) audit of \d+ rows, \d+ s of CPU time, false alarm \S+\.\n\n"
    r"(:::\{dropdown\} .*\n\n)?\| audit \| part \| claim \| seen \| accounted \| verdict \|\n(\|---){6}\|\n"
    r"(\| [\w.-]+( \(\d+ cases\))? \| \w+ \| ((mu|epsilon) = [\d.]+)? \| ([\d.]+%)? \| ([\d.]+%)? \| "
    r"(holds|refuted|cannot see)(: [^|]+)? \|\n)+"
)


def test_the_page_of_the_audit_has_one_as_the_command_prints_it(capsys):
    page = (Path(__file__).parents[2] / "docs" / "project" / "audit.md").read_text(encoding="utf-8")
    assert main(["audit", "WishartCovariance", "--quick", "--seed", "1"]) == 0
    printed = capsys.readouterr().out
    for text in (page, printed):
        assert len(TABLE.findall(text)) == 1
    rows = printed[printed.index("|---") :].split("\n")[1:5]
    assert {row.split(" | ")[0] for row in rows} == {"| WishartCovariance", "| WishartCovariance-replace"}


@pytest.mark.long
@pytest.mark.parametrize("turn", range(50))
def test_whole_quick_audits_with_fresh_keys_end_alike(turn):
    # A true claim is refuted in one of a thousand of them. ``pytest -m long tests/auditing``; 20 CPU minutes.
    report = audit_named([], mode="quick")
    assert report.holds, "\n".join(str(row) for row in report.rows if not row.holds)
