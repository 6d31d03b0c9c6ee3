"""Reading a run of another process or time: its folder, its files, or its store."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from streampca.errors import UsageError
from streampca.regret.regret import RegretRecord
from streampca.release.file import ReleaseLines
from streampca.release.release import Release
from streampca.store.database import Database
from streampca.store.reading import published_parameters
from streampca.views.page import Page

#: First two lines of the exact regret; a column ``slack`` may follow.
_MARK, _COLUMNS = "# curator only", "t,reward,opt,regret,bound,captured"
_STORE = b"SQLite format 3\x00"
#: Lines or releases read at a time.
_MOST = 4096


class RunFiles:
    """Files of a run that may still grow, read in order. Raises `UsageError` for missing files and other ones.

    ``path`` is ``releases.jsonl``, a store (``run.db``: read without its key), or a folder that holds either. Only with
    ``regret``, the file of the exact regret, is a file of the curator opened. ``parameters`` are empty before a header.
    """

    def __init__(self, path: Path, regret: Path | None = None) -> None:
        candidates = (path / "releases.jsonl", path / "run.db") if path.is_dir() else (path,)
        found = next((candidate for candidate in candidates if candidate.is_file()), None)
        if found is None:
            raise UsageError(f"{path}: no releases.jsonl and no store there; give what streampca run wrote")
        if regret is not None and not regret.is_file():
            raise UsageError(f"{regret}: there is no such file")
        self.path, self.regret = found, regret
        self.parameters: Mapping[str, Any] = {}
        with found.open("rb") as file:
            self._is_store = file.read(len(_STORE)) == _STORE
        self._reader = ReleaseLines(found)
        self._places = dict[Path, int]()  # bytes read of each file of lines
        self._number = 0  # of the last line read of the regret
        self._at = 0  # row of the latest release read from a store

    def new_releases(self) -> list[Release]:
        """Return the next releases, at most some thousands."""
        if self._is_store:
            # Opened for each look: a read that lasts would keep the write-ahead log of the run from being cut.
            with closing(Database(str(self.path), write=False)) as database:
                self.parameters = self.parameters or published_parameters(database)
                releases = list(islice(database.releases(self._at), _MOST))
            self._at = releases[-1].t if releases else self._at
            return releases
        releases = [release for line in self._lines(self.path) if (release := self._reader.read(line)) is not None]
        if self._reader.header is not None:
            self.parameters = self._reader.header.parameters
        return releases

    def new_records(self) -> list[RegretRecord]:
        """Return the next records of the exact regret. Curator only."""
        records = []
        for line in [] if self.regret is None else self._lines(self.regret):
            self._number += 1
            text = line.strip()
            try:
                if self._number == 1 and not text.startswith(_MARK):
                    raise ValueError("no mark of the curator")
                if self._number == 2 and text.removesuffix(",slack") != _COLUMNS:
                    raise ValueError("other columns")
                if self._number > 2:
                    records.append(RegretRecord.of(float(value) for value in text.split(",")))
            except (ValueError, TypeError) as problem:
                raise UsageError(
                    f"{self.regret}, line {self._number}: not a regret file; give one that streampca run --regret wrote"
                ) from problem
        return records

    def update(self, page: Page) -> bool:
        """Add new releases and records to a page; return False if there are none."""
        events: list[Release | RegretRecord] = [*self.new_releases(), *self.new_records()]
        # The header is read with the first releases.
        page.describe(self.parameters)
        page.add(events)
        return bool(events)

    def _lines(self, path: Path) -> list[str]:
        """Return the next complete lines of a file."""
        lines: list[str] = []
        with path.open("rb") as file:
            file.seek(self._places.get(path, 0))
            # A last line without its end is still being written.
            while len(lines) < _MOST and (line := file.readline()).endswith(b"\n"):
                self._places[path] = file.tell()
                lines.append(line.decode("utf-8", "replace"))
        return lines
