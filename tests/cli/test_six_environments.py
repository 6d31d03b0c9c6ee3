"""Off a terminal, what a command says is a function of its options and of what was released.

Commands run in this process with output in files, under environments that ask for colors, widths and terminals.
`neighbors` runs them on two inputs, the second with the tape of the first forced, so that outlets release the same
values in both: what remains different in exit status, standard output, standard error and publishable files depends on
the rows otherwise than through noise.
"""

import contextlib
import io
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest

from streampca.cli import main
from streampca.cli.live import PlainView
from streampca.privacy.randomness import Tape

#: What rich, click and others read from the environment. All other variables of this kind are unset.
ENVIRONMENTS: dict[str, dict[str, str]] = {
    "FORCE_COLOR": {"FORCE_COLOR": "1"},
    "CLICOLOR_FORCE": {"CLICOLOR_FORCE": "1"},
    "TTY_COMPATIBLE": {"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1"},
    "COLUMNS": {"COLUMNS": "61", "LINES": "50"},
    "dumb": {"TERM": "dumb"},
    "NO_COLOR": {"NO_COLOR": "1"},
}
_UNSET = {name for environment in ENVIRONMENTS.values() for name in environment}
#: Seconds, rates and names of durable runs differ between any two runs.
_OWN = re.compile(rb"\d[\d .]*(?= s\b| rows/s\b| min left\b)|\b[0-9a-f]{32}\b")


class Seen(NamedTuple):
    """What others may see of a command: exit status, both outputs, files it wrote that are not secret, all names.

    Of databases, which hold random names and times, only the size is compared.
    """

    argv: tuple[str, ...]
    status: int
    out: bytes
    err: bytes
    files: dict[str, bytes]
    names: tuple[str, ...]  #: of all files there are

    @property
    def text(self) -> str:
        """Both outputs."""
        return (self.out + self.err).decode()


def seen(
    argv: Sequence[object], folder: Path, environment: Mapping[str, str], tape: Tape, *, terminal: bool = False
) -> Seen:
    """Run one command in a folder, both outputs in files that say whether they are a terminal.

    Files that only their owner may read are not seen. Logs get a line after every batch, not every two seconds.
    """
    parts = [str(part) for part in argv]
    kept = {name: value for name, value in os.environ.items() if name not in _UNSET}
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    out, err = (io.TextIOWrapper((folder / name).open("w+b"), "utf-8") for name in (".out", ".err"))
    for stream in (out, err):
        stream.isatty = lambda: terminal  # type: ignore[method-assign]
    with (
        mock.patch.dict(os.environ, {**kept, "TERM": "xterm-256color", **environment}, clear=True),
        contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
        warnings.catch_warnings(), tape.recording(), mock.patch.object(PlainView, "period", 0.0),
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        status = main(parts)
    texts = []
    for stream in (out, err):
        stream.flush()
        stream.buffer.seek(0)
        texts.append(_OWN.sub(b"#", stream.buffer.read()))
        stream.close()
    written = {
        str(path.relative_to(folder)): b"%d bytes" % path.stat().st_size if ".db" in path.name else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (".out", ".err") and path.stat().st_mode & 0o077
        and before.get(path) != path.stat().st_mtime_ns
    }  # fmt: skip
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    return Seen(tuple(parts), status, texts[0], texts[1], written, tuple(names))


def neighbors(
    commands: Iterable[Sequence[object]], edit: str, folder: Path, environment: Mapping[str, str], **more: bool
) -> Iterator[tuple[Seen, Seen]]:
    """Run commands one by one on an input and on its neighbor, the second with the tape of the first forced."""
    folders = [folder / name for name in ("one", "other")]
    for place, row in zip(folders, ("", edit), strict=True):
        place.mkdir()
        write(place, row)
    for argv in commands:
        tape = Tape(seed=b"six environments")
        yield seen(argv, folders[0], environment, tape, **more), seen(argv, folders[1], environment, Tape(tape), **more)


COMMON = ("-k", "2", "--epsilon", "1", "--delta", "1e-5", "--row-norm", "4", "--columns", "a,b,c,d")
RUN = ("run", "rows.csv", *COMMON, "--release-every", "50", "--seed", "3")
FILES = ("--regret", "regret.csv", "--summary", "summary.md", "--private-regret", "public.jsonl")
COMMANDS: Sequence[Sequence[str]] = (
    (*RUN, "--out", "r.jsonl", *FILES, "--set", "publish_regret=yes"),
    (*RUN, "--out", "-", "--horizon", "300"),
    ("run", "rows.csv", "-k", "2", "--epsilon", "1", "--delta", "1e-5", "--bounds", "private", "--columns", "all",
     "--out", "private.jsonl", "--release-every", "50"),
    ("show", "r.jsonl"),
    ("show", "r.jsonl", "--json"),
    ("transform", "r.jsonl", "rows.csv"),
    ("ledger", "budget", "ledger.db", "table", "--epsilon", "9", "--delta", "1e-3"),
    ("pca", "rows.csv", "--mechanism", "gaussian", *COMMON, "--ledger", "ledger.db", "--data-set", "table"),
    ("pca", "rows.csv", "--mechanism", "adaptive", *COMMON, "--out", "adaptive.jsonl"),
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
#: Row 18 of the neighbor, in place of ordinary numbers: text, missing, infinite, with a line end, short. Or all rows.
ALL_BAD = "all bad"
EDITS = ("1,x,3,4", "1,,3,4", "1e999,-inf,0,0", '2.5,"1\n5",0,0', "1,2,3", ALL_BAD)
#: Marks of exact figures on cards and in logs.
EXACT = re.compile(r"curator only: (captured|unusable|clipped|shortened)|\d bad rows")


def write(folder: Path, edit: str) -> None:
    data = np.random.default_rng(1).normal(size=(300, 4)) * [3.0, 2.0, 1.0, 0.5]
    lines = ["a,b,c,d", *(",".join(f"{value:.6f}" for value in row) for row in data)]
    lines[18] = edit or lines[18]
    if edit == ALL_BAD:
        lines[1:] = [",,,"] * 300
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    (folder / "head.csv").write_text("\n".join(lines[:151]) + "\n")


@pytest.mark.parametrize(
    ("name", "edit", "heavy"),
    [
        *(
            (name, edit, [])
            if name == "COLUMNS"
            else pytest.param(name, edit, [HEAVY[name]] if name in HEAVY else [], marks=pytest.mark.ci)
            for name, edit in zip(ENVIRONMENTS, EDITS, strict=True)
        ),
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
    for one, other in neighbors([*COMMANDS, *heavy], edit, tmp_path, ENVIRONMENTS[name]):
        assert one.status == 0, one.text
        assert one == other
        assert "\x1b" not in one.text, one.argv
        assert not EXACT.search(one.text), (one.argv, one.text)


@pytest.mark.parametrize("number", [0, 7, 11])
def test_in_a_terminal_the_curator_sees_the_difference(number: int, tmp_path: Path) -> None:
    """So the test above can fail."""
    commands = COMMANDS[6 : number + 1] if number == 7 else COMMANDS[9 : number + 1] if number > 7 else COMMANDS[:1]
    *_, (one, other) = neighbors(commands, EDITS[0], tmp_path, {}, terminal=True)
    assert one.err != other.err
    assert EXACT.search(one.text)
