"""Reading a run of another process or time: its folder, its files, or its store."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from streampca.errors import BadParameterError
from streampca.regret.private_regret import PrivateRegretRecord
from streampca.regret.regret import RegretRecord
from streampca.release.file import ReleaseLines
from streampca.release.release import Release
from streampca.store.database import Database
from streampca.store.reading import published_parameters
from streampca.views.curator import CuratorPage
from streampca.views.public import PublicPage

_MARK = "# curator only"
_COLUMNS = "t,reward,opt,regret,bound,captured"  # and, since intervals are kept, slack
_STORE = b"SQLite format 3\x00"


class Lines:
    """Reader of the complete lines that are appended to a file. The file need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0

    def new(self, most: int = 4096) -> list[str]:
        """Return the next lines, at most ``most``, without a last line that is incomplete."""
        out: list[str] = []
        if not self.path.exists():
            return out
        with self.path.open("rb") as file:
            file.seek(self._at)
            while len(out) < most and (line := file.readline()).endswith(b"\n"):
                self._at += len(line)
                out.append(line.decode("utf-8", "replace"))
        return out


@dataclass
class PublicRun:
    """Publishable files of a run: its releases, read in order. Never opens a file of the curator.

    Parameters
    ----------
    path : ``releases.jsonl``, or a store (``run.db``: read without its key), or a folder that holds either.
    private_regret : file of publishable regret records, for releases without Gram matrices.

    Attributes
    ----------
    parameters : public parameters of the run; empty until its header was read.
    """

    path: Path
    private_regret: Path | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        path = self.path
        candidates = (path / "releases.jsonl", path / "run.db") if path.is_dir() else (path,)
        try:
            self.path = next(candidate for candidate in candidates if candidate.is_file())
        except StopIteration:
            raise BadParameterError(
                f"{path}: no releases.jsonl and no store there; give what streampca run wrote"
            ) from None
        with self.path.open("rb") as file:
            self._is_store = file.read(len(_STORE)) == _STORE
        self._lines = Lines(self.path)
        self._reader = ReleaseLines(self.path)
        self._records = None if self.private_regret is None else Lines(self.private_regret)
        self._at = 0  # row of the latest release read from a store

    def new_releases(self) -> list[Release]:
        """Return the next releases, at most some thousands. Raises `BadParameterError` if a line is something else."""
        releases = []
        if self._is_store:
            with closing(Database(str(self.path), write=False)) as database:
                self.parameters = self.parameters or published_parameters(database)
                releases = list(islice(database.releases(self._at), 4096))
            self._at = releases[-1].t if releases else self._at
            return releases
        for line in self._lines.new():
            release = self._reader.read(line)
            if release is not None:
                releases.append(release)
            elif self._reader.header is not None:
                self.parameters = self._reader.header.parameters
        return releases

    def update(self, page: PublicPage) -> bool:
        """Add new releases and records to a page; return False if there are none."""
        releases = self.new_releases()
        if self.parameters:
            page.describe(self.parameters)
        page.add(releases)
        lines = [] if self._records is None else self._records.new()
        page.add_regret([PrivateRegretRecord.from_json(line) for line in lines])
        return bool(releases or lines)


class CuratorRun:
    """Reader of the exact regret of a run, ``regret.csv``. Curator only."""

    def __init__(self, path: Path) -> None:
        self._lines = Lines(path)
        self._path = path
        self._number = 0

    def new_records(self) -> list[RegretRecord]:
        """Return the next records. Raises `BadParameterError` if the file is something else."""
        out = []
        for line in self._lines.new():
            self._number += 1
            text = line.strip()
            is_other = self._number == 2 and text.removesuffix(",slack") != _COLUMNS
            if is_other or (self._number == 1 and not text.startswith(_MARK)):
                raise BadParameterError(
                    f"{self._path} is not a regret file; give one that streampca run --regret wrote"
                )
            if self._number > 2:
                try:
                    out.append(RegretRecord.of(float(value) for value in text.split(",")))
                except (ValueError, TypeError) as problem:
                    raise BadParameterError(f"{self._path}, line {self._number}: not a regret record") from problem
        return out

    def update(self, page: CuratorPage) -> bool:
        """Add new records to a page; return False if there are none."""
        records = self.new_records()
        page.add(records)
        if records:
            page.count(rows=records[-1].t)
        return bool(records)
