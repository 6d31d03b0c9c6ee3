"""Every claim, with fixed keys; and every planted bug."""

import json
import re
from pathlib import Path

import pytest

from streampca.auditing.bugs import BUGS
from streampca.auditing.cases import CASES
from streampca.auditing.suite import audit, audit_named, audit_planted, named
from streampca.cli import main

QUICK = named([], "quick")
#: A mistake is planted in one case; in the others, ``pytest -m long`` and ``streampca audit --bugs`` plant it.
FIRST = {bug.name: bug for bug in reversed(BUGS)}
PLANTED = [pytest.param(bug, marks=() if FIRST[bug.name] is bug else pytest.mark.long) for bug in BUGS]


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_every_part_holds(case):
    rows = audit(case, mode="quick", false_alarm=1e-3 / len(QUICK), seed=1).rows
    assert all(row.holds for row in rows), "\n".join(map(str, rows))


@pytest.mark.long
@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_gaussian_claims_are_nearly_seen(case):
    rows = audit(case, mode="standard", false_alarm=1e-3 / len(CASES), seed=1).rows
    assert all(row.holds for row in rows), "\n".join(map(str, rows))
    for row in rows[1:]:
        shares = [share for share in (row.seen, row.accounted) if share is not None]
        assert min(shares) >= 0.95 or row.witness, str(row)


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: f"{bug.name} in {bug.case}".replace(" ", "-"))
def test_planted_bug_is_refuted(bug):
    rows = audit_planted(bug, 1e-3 / len(BUGS), seed=1)
    assert any(row.verdict == "refuted" for row in rows), "\n".join(map(str, rows))


def test_the_command(capsys):
    assert main(["audit", "--list"]) == 0
    assert "PrivateFPL-tree" in capsys.readouterr().out.split()
    assert main(["audit", "GaussianCovariance-replace", "--quick", "--seed", "1"]) == 0
    assert "everything holds: 2 rows" in capsys.readouterr().out
    assert main(["audit", "GaussianCovariance-replace", "--quick", "--seed", "1", "--json"]) == 0
    assert {row["verdict"] for row in json.loads(capsys.readouterr().out)} == {"holds"}
    assert main(["audit", "GaussianCovariance-replace", "--bugs", "--seed", "1"]) == 0
    assert "bugs refuted" in capsys.readouterr().out
    assert main(["audit"]) == 2
    assert main(["audit", "PrivateFlp"]) == 2


def test_the_run_command_does_not_tell_on_rows(capsys):
    assert main(["audit", "run-command", "--quick", "--seed", "1"]) == 0
    assert "run-command" in capsys.readouterr().out


SHAPES = (
    r"\n<!-- audit -->\n\n(\d{4}-\d\d-\d\d), streampca (\S+): (quick|standard) audit of (\d+) rows, \d+ s of CPU time, "
    r"false alarm \S+\.\n\n\| audit \| part \| claim \| seen \| accounted \| verdict \|\n(\|---){6}\|\n",
    r"\| [\w-]+ \| \w+ \| ((mu|epsilon) = [\d.]+)? \| ([\d.]+%)? \| ([\d.]+%)? \| "
    r"(holds|refuted|cannot see)(: [^|]+)? \|\n",
    r"\n<!-- end of audit -->\n",
)


def test_the_privacy_page_prints_an_audit_as_the_command_writes_it(tmp_path, capsys):
    page = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text(encoding="utf-8")
    path = tmp_path / "privacy.md"
    path.write_text(page, encoding="utf-8")
    names = ["csv", "GaussianCovariance-replace", "StabilityHistogram-moves"]
    assert main(["audit", *names, "--quick", "--seed", "1", "--markdown", str(path)]) == 0
    written = path.read_text(encoding="utf-8")
    whole = re.compile(f"{SHAPES[0]}({SHAPES[1]})+{SHAPES[2]}")
    for text in (page, written):
        assert len(whole.findall(text)) == 1
    rows = written[written.index("|---") :].split("\n")[1:4]
    assert [row.split(" | ")[0] for row in rows] == [f"| {name}" for name in names]
    assert whole.split(page)[0] == whole.split(written)[0]
    path.write_text("no table", encoding="utf-8")
    assert main(["audit", "csv", "--quick", "--markdown", str(path)]) == 2
    assert path.read_text(encoding="utf-8") == "no table"


@pytest.mark.long
@pytest.mark.parametrize("salt", range(14))
def test_honest_rows_are_not_refuted(salt):
    """More than 300 rows over 14 salts, a quarter of all cases with each."""
    rows = [
        row for case in QUICK[salt % 4 :: 4] for row in audit(case, mode="quick", false_alarm=1e-3 / 50, seed=salt).rows
    ]
    assert len(rows) > 22
    assert all(row.holds for row in rows), "\n".join(str(row) for row in rows if not row.holds)


@pytest.mark.long
@pytest.mark.parametrize("turn", range(50))
def test_whole_quick_audits_with_fresh_keys_end_alike(turn):
    """A true claim is refuted in one of a thousand of them. ``pytest -m long tests/auditing``; 20 CPU minutes."""
    report = audit_named([], mode="quick")
    assert report.holds, "\n".join(str(row) for row in report.rows if not row.holds)
