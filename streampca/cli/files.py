"""Files that commands write: opened by their first line, complete wherever a run ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from glob import glob
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, TextIO

from streampca.errors import UsageError
from streampca.linalg.counts import check_count
from streampca.regret.regret import RegretRecord
from streampca.release.file import Header
from streampca.release.release import Release
from streampca.release.terms import Terms

CURATOR_ONLY = "# curator only: exact functions of raw rows, no privacy at all; do not publish"
_EXISTS = "{} exists already. Choose another name, or --force to replace it; the budget spent on it stays spent"
_COLUMNS = ("t", "reward", "opt", "regret", "bound", "captured", "slack")


def refuse_inputs(source: Path, *written: Path | None) -> None:
    """Refuse to write one of the files that ``source``, a path or a pattern, names, also with --force."""
    read = [Path(name) for name in glob(str(source))] or [source]
    for path in written:
        if path is not None and path.exists() and any(one.exists() and path.samefile(one) for one in read):
            raise UsageError(f"{path} is read, and would be overwritten; name another file to write")


class OutputFile:
    """A text file that is opened by its first line: a run that absorbs nothing writes and overwrites nothing.

    The path ``-`` is standard output, and None is no file at all. Only its owner may read a file of the ``curator``.
    Raises `UsageError` if the file exists and ``force`` is false.
    """

    def __init__(self, path: Path | None, *, force: bool = False, curator: bool = False) -> None:
        self.path, self.is_curators = path, curator
        self.is_written = False  #: the path is a file, not standard output, and its first line is written
        self._mode: Literal["w", "x"] = "w" if force else "x"
        self._file: TextIO | None = sys.stdout if str(path) == "-" else None
        # Before the run is paid for. `write` refuses a file that appears later.
        if path is not None and self._file is None:
            if not path.parent.is_dir():
                raise UsageError(f"{path}: there is no folder {path.parent}. Create it first. Nothing was spent")
            if not force and path.exists():
                raise UsageError(_EXISTS.format(path))

    def write(self, text: str) -> None:
        """Write text; the first call opens the file."""
        if self.path is None:
            return
        if self._file is None:
            bits = 0o600 if self.is_curators else 0o666
            try:
                # The file has its mode before it has a line. Mode "x" refuses one that another program has created.
                self._file = open(  # noqa: SIM115
                    self.path, self._mode, encoding="utf-8", newline="\n",
                    opener=lambda name, flags: os.open(name, flags, bits),
                )  # fmt: skip
            except FileExistsError:
                raise UsageError(_EXISTS.format(self.path)) from None
            self.is_written = True
            if self.is_curators:  # an overwritten file keeps its mode
                self.path.chmod(bits)
        self._file.write(text)

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        if self.path is None or self._file is None or not self.is_written:
            return self.flush()
        try:
            self._file.close()
        finally:
            # The disk may be full from the first line on.
            if self.path.is_file() and not self.path.stat().st_size:
                self.path.unlink()


class ReleaseFile(OutputFile):
    """``releases.jsonl``: a header line, then one in ``keep_every`` releases a line. Publishable."""

    def __init__(self, path: Path | None, *, gram: bool = True, keep_every: int = 1, force: bool = False) -> None:
        check_count("keep_every", keep_every)
        super().__init__(path, force=force)
        self._gram, self._every, self._mark = gram, keep_every, ""
        self.count = self.written = 0  #: releases added, and those of them written
        self.t = 0  #: rows in the last release written

    def header(self, terms: Terms, parameters: Mapping[str, Any]) -> None:
        """Write the first line. `parameters` must be public: no seed, no key, nothing of the rows."""
        self._mark = terms.mark
        self.write(Header(terms, parameters).to_json() + "\n")

    def add(self, releases: list[Release]) -> None:
        # Terms that the header holds are omitted from each line. A release under other terms carries its own.
        for release in releases:
            self.count += 1
            if self.path is not None and self.count % self._every == 0:
                self.write(release.to_json(gram=self._gram, terms=release.terms.mark != self._mark) + "\n")
                self.written, self.t = self.written + 1, release.t


class Files:
    """Files of a run; a path that is None is not written.

    Releases and the regret as intervals (``private_regret``) are publishable; the exact regret and the card of the run
    (``summary``) are curator only, and say so. Raises `UsageError` if two of them are one file, or one exists
    and ``force`` is false.
    """

    def __init__(
        self, releases: Path | None = None, *, gram: bool = True, keep_every: int = 1, regret: Path | None = None,
        private_regret: Path | None = None, summary: Path | None = None, force: bool = False,
    ) -> None:  # fmt: skip
        # One file would mix publishable lines with exact ones.
        named = {"--out": releases, "--regret": regret, "--private-regret": private_regret, "--summary": summary}
        for (one, path), (other, same) in combinations(named.items(), 2):
            if path is not None and path == same:
                raise UsageError(f"{one} and {other} are both {path}; give each a file of its own")
        self.releases = ReleaseFile(releases, gram=gram, keep_every=keep_every, force=force)
        self.private_regret = OutputFile(private_regret, force=force)
        self.regret, self.summary = (OutputFile(path, force=force, curator=True) for path in (regret, summary))
        self.all: tuple[OutputFile, ...] = (self.releases, self.private_regret, self.regret, self.summary)
        self.is_begun = False  #: the first lines are written
        # Lines of the regret wait for the first release: a run that fails before it leaves no file.
        self._early = f"{CURATOR_ONLY}\n{','.join(_COLUMNS)}\n"

    def begin(self, terms: Terms, parameters: Mapping[str, Any]) -> None:
        self.releases.header(terms, parameters)
        self.regret.write(self._early)
        self.is_begun = True

    def add_regret(self, record: RegretRecord) -> None:
        # repr has every digit: reports and pages read the file back.
        values = (getattr(record, name) for name in _COLUMNS)
        line = ",".join("nan" if value is None else repr(value) for value in values) + "\n"
        if self.is_begun:
            self.regret.write(line)
        elif self.regret.path is not None:
            self._early += line

    def flush(self) -> None:
        for file in self.all:
            file.flush()
