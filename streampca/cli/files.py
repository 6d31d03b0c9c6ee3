"""Files that commands write: opened by their first line, complete wherever a run ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from glob import glob
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, TextIO

from streampca.errors import BadParameterError
from streampca.regret.regret import RegretRecord
from streampca.release.file import Header
from streampca.release.release import Release, Terms

CURATOR_ONLY = "# curator only: exact functions of raw rows, no privacy at all; do not publish"
_COLUMNS = ("t", "reward", "opt", "regret", "bound", "captured", "slack")


def refuse_inputs(source: Path, *written: Path | None) -> None:
    """Refuse to write a file that is read, also with --force.

    Raises `BadParameterError` if one of the files that are written is one of those that ``source``, a path or a
    pattern, names.
    """
    read = [Path(name) for name in glob(str(source))] or [source]
    for path in written:
        if path is not None and path.exists() and any(one.exists() and path.samefile(one) for one in read):
            raise BadParameterError(f"{path} is read, and would be overwritten; name another file to write")


class OutputFile:
    """A text file that is opened by its first line: a run that absorbs nothing writes and overwrites nothing.

    The path ``-`` is standard output, and None is no file at all. Only its owner may read a file of the ``curator``.
    Raises `BadParameterError` if the file exists and ``force`` is false.
    """

    def __init__(self, path: Path | None, *, force: bool = False, curator: bool = False) -> None:
        self.path = path
        self._force, self._curator = force, curator
        self._file: TextIO | None = None
        self._is_stdout = str(path) == "-"
        if not force and path is not None and not self._is_stdout and path.exists():
            raise _exists(path)

    def write(self, text: str) -> None:
        """Write text; the first call opens the file."""
        path = self.path
        if path is None:
            return
        if self._file is None and self._is_stdout:
            self._file = sys.stdout
        elif self._file is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            mode: Literal["w", "x"] = "w" if self._force else "x"
            bits = 0o600 if self._curator else 0o666
            try:
                self._file = open(  # noqa: SIM115
                    path, mode, encoding="utf-8", newline="\n", opener=lambda name, flags: os.open(name, flags, bits)
                )
            except FileExistsError:
                raise _exists(path) from None
            if self._curator:  # one that is overwritten keeps its mode
                path.chmod(bits)
        self._file.write(text)

    @property
    def is_written(self) -> bool:
        """True once it is there, and is a file and not standard output."""
        return self._file is not None and not self._is_stdout

    def flush(self) -> None:
        """Flush the file."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Finish the file."""
        self.flush()
        if self._file is not None and not self._is_stdout:
            self._file.close()


def _exists(path: Path) -> BadParameterError:
    return BadParameterError(f"{path} exists; pass another name, or --force to overwrite it")


class ReleaseFile(OutputFile):
    """``releases.jsonl``: a header line, then one in ``keep_every`` releases a line. Publishable."""

    def __init__(self, path: Path | None, *, gram: bool = True, keep_every: int = 1, force: bool = False) -> None:
        if keep_every < 1:
            raise BadParameterError(f"keep_every={keep_every} must be at least 1")
        super().__init__(path, force=force)
        self._gram, self._every = gram, keep_every
        self._mark = ""
        self.made = self.written = 0

    def header(self, terms: Terms, parameters: Mapping[str, Any]) -> None:
        """Write the first line. `parameters` must be public: no seed, no key, nothing of the rows."""
        self._mark = terms.mark
        self.write(Header(terms, parameters).to_json() + "\n")

    def add(self, releases: list[Release]) -> None:
        """Write releases, in order, without what they share with the header."""
        for release in releases:
            if self.path is not None and self.made % self._every == self._every - 1:
                own = release.terms.mark != self._mark
                self.write(release.to_json(gram=self._gram, terms=own) + "\n")
                self.written += 1
            self.made += 1


class Files:
    """Files of a run, those that are asked for.

    Releases and the regret as intervals (``private_regret``) are publishable; the exact regret and the card of the run
    (``summary``) are curator only, and say so. Raises `BadParameterError` if two of them are one file, or one exists
    and ``force`` is false.
    """

    def __init__(
        self,
        releases: Path | None = None,
        *,
        gram: bool = True,
        keep_every: int = 1,
        regret: Path | None = None,
        private_regret: Path | None = None,
        summary: Path | None = None,
        force: bool = False,
    ) -> None:
        named = {"--out": releases, "--regret": regret, "--private-regret": private_regret, "--summary": summary}
        for (one, path), (other, same) in combinations(named.items(), 2):
            if path is not None and path == same:
                raise BadParameterError(f"{one} and {other} are both {path}; give each a file of its own")
        self.releases = ReleaseFile(releases, gram=gram, keep_every=keep_every, force=force)
        self.regret = OutputFile(regret, force=force, curator=True)
        self.private_regret = OutputFile(private_regret, force=force)
        self.summary = OutputFile(summary, force=force, curator=True)
        #: Lines of the regret before the first release: without one, a run that fails leaves no file. None once begun.
        self._early: list[str] | None = [f"{CURATOR_ONLY}\n{','.join(_COLUMNS)}\n"]

    @property
    def is_begun(self) -> bool:
        """True once the first lines are written."""
        return self._early is None

    def begin(self, terms: Terms, parameters: Mapping[str, Any]) -> None:
        """Write the first lines."""
        self.releases.header(terms, parameters)
        self.regret.write("".join(self._early or ()))
        self._early = None

    def add_regret(self, record: RegretRecord) -> None:
        """Write a record of the exact regret."""
        if self.regret.path is not None:
            write = self.regret.write if self._early is None else self._early.append
            values = (getattr(record, name) for name in _COLUMNS)
            write(",".join("nan" if value is None else repr(value) for value in values) + "\n")

    def flush(self) -> None:
        """Flush the files."""
        for file in (self.releases, self.regret, self.private_regret, self.summary):
            file.flush()

    def close(self) -> None:
        """Finish the files."""
        for file in (self.releases, self.regret, self.private_regret, self.summary):
            file.close()
