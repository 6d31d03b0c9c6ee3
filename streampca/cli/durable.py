"""What the commands on durable runs share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streampca.errors import BadParameter, SourceError
from streampca.linalg.types import FloatArray
from streampca.rows import Bounds, RowSource
from streampca.store.store import Store


def passphrase_of(file: Path | None) -> str | None:
    """The passphrase in a file, without the end of its line.

    Raises
    ------
    BadParameter
        If the file is empty.
    """
    if file is None:
        return None
    text = file.read_text(encoding="utf-8").rstrip("\r\n")
    if not text:
        raise BadParameter(f"{file} is empty; write the passphrase into it")
    return text


def open_store(
    path: Path, passphrase_file: Path | None, *, witness: Path | None = None, commit_every: str | None = None
) -> Store:
    """A store; what is left out is as in `Store`."""
    given: dict[str, Any] = {}
    if commit_every is not None:
        given["commit_every"] = int(commit_every) if commit_every.isdigit() else commit_every
    return Store(path, passphrase=passphrase_of(passphrase_file), witness=witness, **given)


class Rest:
    """The rows of a source after the first so many.

    Raises
    ------
    SourceError
        While reading, if there are not even that many.
    """

    def __init__(self, source: RowSource, skip: int, name: str) -> None:
        self._source, self._skip, self._name = source, skip, name

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        return self._source.features

    @property
    def bounds(self) -> Bounds | None:
        """Public bounds of each feature."""
        return self._source.bounds

    def blocks(self) -> Iterator[FloatArray]:
        """The rows that are left, in blocks."""
        left = self._skip
        for block in self._source.blocks():
            start, left = min(left, len(block)), max(0, left - len(block))
            if start < len(block):
                yield block[start:]
        if left:
            raise SourceError(
                f"{self._name} has {self._skip - left} rows, but the run has taken {self._skip}; give the whole file, "
                f"or pass --continues if it begins with row {self._skip + 1}"
            )

    def __iter__(self) -> Iterator[FloatArray]:
        """The rows that are left, one at a time."""
        for block in self.blocks():
            yield from block
