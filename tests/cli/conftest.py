"""Commands run in this process."""

import sys
from collections.abc import Callable
from typing import NamedTuple
from unittest import mock

import pytest

from streampca.cli import main


class Said(NamedTuple):
    """Exit status and both outputs of a command."""

    status: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """Standard error on one line."""
        return " ".join(self.err.split())


@pytest.fixture
def terminal() -> None:
    """Let standard error be a terminal in commands of this test."""


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Callable[..., Said]:
    """Run ``streampca`` with these words."""
    is_terminal = "terminal" in request.fixturenames

    def run(*words: object) -> Said:
        capsys.readouterr()
        with mock.patch.object(sys.stderr, "isatty", return_value=is_terminal):
            return Said(main([str(word) for word in words]), *capsys.readouterr())

    return run
