"""Off a terminal, what a command says is a function of its options and of what was released."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from six_environments import ENVIRONMENTS, difference, neighbors

COMMON = ("-k", "2", "--epsilon", "1", "--delta", "1e-5", "--on-bad-row", "zero", "--row-norm", "4")
RUN = ("run", "rows.csv", *COMMON, "--release-every", "50", "--seed", "3")
FILES = ("--regret", "regret.csv", "--summary", "summary.md", "--private-regret", "public.jsonl")
COMMANDS: Sequence[Sequence[str]] = (
    (*RUN, "--out", "r.jsonl", *FILES, "--set", "publish_regret=yes"),
    (*RUN, "--out", "-", "--horizon", "300"),
    ("run", "rows.csv", "-k", "2", "--epsilon", "1", "--delta", "1e-5", "--on-bad-row", "zero", "--bounds", "private",
     "--out", "private.jsonl", "--release-every", "50"),
    ("show", "r.jsonl"),
    ("show", "r.jsonl", "--json"),
    ("transform", "r.jsonl", "rows.csv"),
    ("ledger", "budget", "ledger.db", "table", "--epsilon", "9", "--delta", "1e-3"),
    ("release", "rows.csv", "--mechanism", "gaussian", *COMMON, "--ledger", "ledger.db", "--data-set", "table"),
    ("release", "rows.csv", "--mechanism", "adaptive", *COMMON, "--out", "adaptive.jsonl"),
    ("run", "head.csv", *RUN[2:], "--store", "run.db", "--out", "stored.jsonl"),
    ("status", "run.db"),
    ("resume", "run.db", "rows.csv"),
    ("status", "run.db"),
    ("verify", "run.db"),
    ("export", "run.db", "--out", "exported.jsonl"),
    ("show", "run.db", "--at", "120"),
)  # fmt: skip
#: They take seconds: in one environment each, unless the long tests run.
HEAVY: dict[str, Sequence[str]] = {
    "FORCE_COLOR": ("demo", "--rows", "100", "--out", "demo"),
    "TTY_COMPATIBLE": ("plan", "--n-rows", "1000", "--n-features", "4", "-k", "2", "--epsilon", "1", "--delta", "1e-6"),
    "CLICOLOR_FORCE": ("report", "r.jsonl"),
}
#: Row 18 of the neighbor, in place of ordinary numbers.
EDITS = ("0,0,0,0", "1,x,3,4", ",,,", "1e30,-1e30,0,0", '2.5,"1,5",0,0', "1,2,3")
#: Marks of exact figures on cards and in logs.
EXACT = re.compile(r"\[curator only\]|curator only: captured|\d bad rows")


def table(edit: str) -> list[str]:
    data = np.random.default_rng(1).normal(size=(300, 4)) * [3.0, 2.0, 1.0, 0.5]
    lines = ["a,b,c,d", *(",".join(f"{value:.6f}" for value in row) for row in data)]
    return [*lines[:18], edit or lines[18], *lines[19:]]


def write(folder: Path, edit: str) -> None:
    lines = table(edit)
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    (folder / "head.csv").write_text("\n".join(lines[:151]) + "\n")


@pytest.mark.parametrize(
    ("name", "edit", "heavy"),
    [
        *((name, edit, [HEAVY[name]] if name in HEAVY else []) for name, edit in zip(ENVIRONMENTS, EDITS, strict=True)),
        *(
            pytest.param(name, edit, list(HEAVY.values()), marks=pytest.mark.long)
            for name in ENVIRONMENTS
            for edit in EDITS
        ),
    ],
)
def test_off_a_terminal_neighbors_say_the_same(
    name: str, edit: str, heavy: list[Sequence[str]], tmp_path: Path
) -> None:
    for one, other in neighbors(
        [*COMMANDS, *heavy], lambda place, number: write(place, edit if number else ""), tmp_path, ENVIRONMENTS[name]
    ):
        assert one.status == 0, one.text
        assert difference(one, other) == ""
        assert "\x1b" not in one.text, one.argv
        assert not EXACT.search(one.text), (one.argv, one.text)


@pytest.mark.parametrize("number", [0, 7, 11])
def test_in_a_terminal_the_curator_sees_the_difference(number: int, tmp_path: Path) -> None:
    """So the test above can fail."""
    commands = COMMANDS[6 : number + 1] if number == 7 else COMMANDS[9 : number + 1] if number > 7 else COMMANDS[:1]
    pairs = list(neighbors(commands, lambda place, other: write(place, EDITS[0] * other), tmp_path, {}, terminal=True))
    one, other = pairs[-1]
    assert "standard error" in difference(one, other)
    assert EXACT.search(one.text)
