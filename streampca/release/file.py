"""Files of releases: a header line, then one release a line. Publishable.

The header holds the `Terms` that all releases of a run share and the public parameters of the run. The following lines
refer to it by the `mark` of the terms; lines with terms of their own (`Release.to_json`) may occur anywhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from streampca.errors import UsageError, reason, short
from streampca.release.release import Release
from streampca.release.terms import Terms

#: Format of the header and of the lines.
FORMAT = 3


@dataclass(frozen=True, eq=False)
class Header:
    """First line of a file of releases: the terms of the following lines, and public parameters."""

    terms: Terms
    parameters: Mapping[str, Any]  #: no seed, no key, no function of rows

    def to_json(self) -> str:
        terms = {name: json.loads(text) for name, text in self.terms.encoded.items()}
        line = {"streampca": version("streampca"), "format": FORMAT, "kind": "header", "terms": self.terms.mark}
        # For readers of the file only: computed from the guarantee, and not read back.
        more = {"parameters": dict(self.parameters), "guarantee_in_words": self.terms.guarantee.in_figures()}
        return json.dumps({**line, **terms, **more}, allow_nan=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Header:
        """Read the JSON values of a header. Raises `UsageError` for other values or another format."""
        try:
            if data["format"] != FORMAT:
                raise ValueError(f"format {short(data['format'])} was written by another version of streampca")
            return cls(Terms.from_dict(data), dict(data["parameters"]))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as problem:
            raise UsageError(f"not the header of a file of releases ({reason(problem)})") from problem


@dataclass(eq=False, repr=False)
class ReleaseLines:
    """Reader of the lines of a file of releases, which messages name."""

    _name: object
    header: Header | None = field(default=None, init=False)  # the latest one
    _number: int = field(default=0, init=False)

    def read(self, line: str) -> Release | None:
        """Return the release in the next line; None for a header and an empty line."""
        self._number += 1
        if not line.strip():
            return None
        try:
            data = json.loads(line)
            if isinstance(data, dict) and data.get("kind") == "header":
                self.header = Header.from_dict(data)
                return None
            return Release.from_dict(data, None if self.header is None else self.header.terms)
        except UsageError as problem:
            raise UsageError(f"{self._name}, line {self._number}: {problem}") from problem
        except (ValueError, RecursionError) as problem:
            text = f"not a release ({reason(problem)}); expected JSON from streampca run."
            raise UsageError(f"{self._name}, line {self._number}: {text}") from problem


def save_release(release: Release, path: str | os.PathLike[str]) -> None:
    """Write a file of one release; see `Release.save`."""
    text = f"{Header(release.terms, {}).to_json()}\n{release.to_json(terms=False)}\n"
    # Written apart and renamed: no reader, and no crash, meets half of it.
    part = Path(f"{os.fspath(path)}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_releases(path: str | os.PathLike[str]) -> Iterator[Release]:
    """Yield the releases in a file from ``streampca run`` or ``streampca export``, or in lines of `Release.to_json`.

    Lines are read lazily. An incomplete last line, of a file that is still being written, is ignored. Any other line
    that is not a release raises `UsageError` with its number.
    """
    lines = ReleaseLines(path)
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        for line in file:
            # A writer may be in the middle of this line; a complete line that is not JSON is an error.
            if not line.endswith("\n"):
                try:
                    json.loads(line)
                except (ValueError, RecursionError):
                    return
            release = lines.read(line)
            if release is not None:
                yield release
