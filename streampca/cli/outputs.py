"""The files of a run, written as it goes: releases for everybody, regret for the curator."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from streampca.errors import BadParameter
from streampca.private_regret import PrivateRegretRecord
from streampca.regret import RegretRecord
from streampca.release import Release, Terms
from streampca.release_file import Header

CURATOR_ONLY = "# curator only: exact functions of raw rows, no privacy at all; do not publish"
_COLUMNS = ("t", "reward", "opt", "regret", "bound", "captured")


class _File:
    """A file that is opened by its first line: a run that absorbs nothing leaves nothing, and overwrites nothing.

    Parameters
    ----------
    path : file, or ``-`` for standard output.
    force : overwrite it if it exists.

    Raises
    ------
    BadParameter
        If it exists and ``force`` is false: nobody should lose a release.
    """

    def __init__(self, path: Path, *, force: bool = False) -> None:
        self.path = path
        self._force = force
        self._file: TextIO | None = None
        if not force and not self._is_stdout and path.exists():
            raise self._exists()

    @property
    def _is_stdout(self) -> bool:
        return str(self.path) == "-"

    @property
    def is_open(self) -> bool:
        """True once something was written."""
        return self._file is not None

    def _open(self) -> TextIO:
        if self._file is None:
            if self._is_stdout:
                self._file = sys.stdout
            else:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    self._file = self.path.open("w" if self._force else "x", encoding="utf-8", newline="\n")
                except FileExistsError:
                    raise self._exists() from None
        return self._file

    def _exists(self) -> BadParameter:
        return BadParameter(f"{self.path} exists; pass another name, or --force to overwrite it")

    def flush(self) -> None:
        """Hand what was written to the system."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Finish the file."""
        self.flush()
        if self._file is not None and not self._is_stdout:
            self._file.close()


class ReleaseFile(_File):
    """``releases.jsonl``: a header line, then one release a line. Publishable.

    Parameters
    ----------
    path, force : see `_File`.
    gram : write Gram matrices too.
    keep_every : write one in so many releases.
    """

    def __init__(self, path: Path, *, gram: bool = True, keep_every: int = 1, force: bool = False) -> None:
        if keep_every < 1:
            raise BadParameter(f"keep_every={keep_every} must be at least 1")
        super().__init__(path, force=force)
        self._gram, self._every = gram, keep_every
        self._mark = ""
        self.made = self.written = 0

    def header(self, terms: Terms, parameters: Mapping[str, Any]) -> None:
        """Write the first line. ``parameters`` must be public: no seed, no key, nothing of the rows."""
        self._mark = terms.mark
        self._open().write(Header(terms, parameters).to_json() + "\n")

    def write(self, releases: list[Release]) -> None:
        """Write releases, in order: what they share with the header is left out."""
        for release in releases:
            if self.made % self._every == self._every - 1:
                own = release.terms.mark != self._mark
                self._open().write(release.to_json(gram=self._gram, terms=own) + "\n")
                self.written += 1
            self.made += 1


class RegretFile(_File):
    """``regret.csv``. Curator only, and its first line says so."""

    def header(self) -> None:
        """Write the first two lines: the warning, and the names of the columns."""
        self._open().write(f"{CURATOR_ONLY}\n{','.join(_COLUMNS)}\n")

    def write(self, records: list[RegretRecord]) -> None:
        """Write records, in order."""
        for record in records:
            self._open().write(",".join(repr(getattr(record, name)) for name in _COLUMNS) + "\n")


class PrivateRegretFile(_File):
    """``private_regret.jsonl``: one record of intervals a line, each with its guarantee. Publishable."""

    def write(self, records: list[PrivateRegretRecord]) -> None:
        """Write records, in order."""
        for record in records:
            self._open().write(record.to_json() + "\n")
