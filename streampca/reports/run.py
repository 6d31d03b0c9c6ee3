"""What a report is made of: the releases of a run, thinned, and the exact regret if it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streampca.dashboard.curator import CuratorBoard
from streampca.dashboard.files import CuratorRun, PublicRun
from streampca.dashboard.public import PublicBoard
from streampca.errors import BadParameter, NoRelease
from streampca.regret import RegretRecord
from streampca.release import Release

#: Releases kept for pictures of loadings over time.
KEPT = 256


@dataclass
class Run:
    """What is known of a run.

    Attributes
    ----------
    board : the public charts: functions of the releases.
    releases : some of the releases, evenly spread, the last among them.
    curator : the curator's charts, or None. Curator only.
    parameters : public parameters.
    """

    board: PublicBoard
    releases: list[Release] = field(default_factory=list)
    curator: CuratorBoard | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def last(self) -> Release:
        """The last release."""
        return self.releases[-1]

    @property
    def is_publishable(self) -> bool:
        """True if there is no exact regret in it, and every release is private."""
        return self.curator is None and self.board.is_private

    @classmethod
    def of(cls, releases: Sequence[Release], records: Sequence[RegretRecord] = (), *, title: str = "streampca") -> Run:
        """A run from objects instead of files. ``records`` of the exact regret are curator only."""
        run = cls(PublicBoard(title))
        run.take(releases)
        if records:
            run.tell(records)
        run.finish()
        return run

    def take(self, releases: Sequence[Release]) -> None:
        """Add releases, in order."""
        self.board.add(releases)
        self.releases += releases
        while len(self.releases) > 2 * KEPT:
            self.releases = self.releases[1::2] if len(self.releases) % 2 == 0 else self.releases[::2]

    def tell(self, records: Sequence[RegretRecord]) -> None:
        """Add exact regret. Curator only."""
        if self.curator is None:
            self.curator = CuratorBoard(self.board)
        self.curator.add(records)

    def finish(self) -> None:
        """Say that this is all.

        Raises
        ------
        NoRelease
            If there is nothing to report on.
        """
        if not self.releases:
            raise NoRelease("there is no release to report on; let the run go on until one is made")
        (self.curator or self.board).end()


def read_run(path: Path, regret: Path | None = None) -> Run:
    """Read the files of a run.

    Parameters
    ----------
    path : ``releases.jsonl``, a store, or a folder that holds either.
    regret : file of the exact regret. Curator only; None leaves it out, and opens nothing of the curator's.

    Raises
    ------
    BadParameter, NoRelease
        If a file is something else, or there is no release yet.
    """
    source = PublicRun(path)
    run = Run(PublicBoard())
    while releases := source.new_releases():
        run.take(releases)
    run.parameters = source.parameters
    run.board.describe(source.parameters)
    if regret is not None:
        if not regret.is_file():
            raise BadParameter(f"{regret}: there is no such file")
        exact = CuratorRun(regret)
        while records := exact.new_records():
            run.tell(records)
    run.finish()
    return run
