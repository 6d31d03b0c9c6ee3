"""A durable run with a public page is stopped (SIGSTOP) at several points, for minutes, and goes on."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streampca.cli import main
from streampca.errors import StoreLockedError
from streampca.store.ledger import Ledger
from streampca.store.reading import status
from streampca.store.store import Store
from streampca.stream.stream import Stream

ROWS, EVERY, RATE = 1500, 10, 300
URL = re.compile(r"http://127\.0\.0\.1:(\d+)/")
COMMAND = "from streampca.cli import main; raise SystemExit(main())"
#: Releases after which the run is stopped: one, some of the many that come at once after that, and all, where only the
#: page goes on.
POINTS = (1, 4, ROWS // EVERY)


class Follower(threading.Thread):
    """Follows the events of a page and keeps its tables, as the page in a browser does.

    Parameters
    ----------
    port : of the page.
    patience : seconds without a word after which it connects anew.
    """

    def __init__(self, port: int, patience: float) -> None:
        super().__init__(daemon=True)
        self.tables: dict[str, list[Any]] = {}
        self.connections = 0
        self._port, self._patience = port, patience
        self._is_done = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._is_done.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._patience)
            try:
                self._read(connection)
            except (OSError, http.client.HTTPException):
                time.sleep(0.2)
            finally:
                connection.close()

    def _read(self, connection: http.client.HTTPConnection) -> None:
        connection.request("GET", "/events")
        answer = connection.getresponse()
        self.connections += answer.status == 200
        while not self._is_done.is_set() and (line := answer.readline().decode().rstrip("\n")) is not None:
            name, _, value = line.partition(": ")
            if name == "data":  # a whole page
                self.tables = {table: shown["rows"] for table, shown in json.loads(value)["tables"].items()}

    def end(self) -> None:
        self._is_done.set()
        self.join(30.0)


def state(port: int) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10.0)
    try:
        connection.request("GET", "/events")
        answer = connection.getresponse()
        while not (line := answer.readline()).startswith(b"data: "):
            pass
        return dict(json.loads(line[6:]))
    finally:
        connection.close()


def releases(path: Path) -> list[str]:
    return path.read_text().splitlines()[1:] if path.exists() else []


def until(what: Any, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not go on"
        time.sleep(0.02)


@pytest.mark.parametrize(
    "pause", [pytest.param(0.5, marks=pytest.mark.ci), pytest.param(180.0, marks=pytest.mark.long)]
)
def test_a_run_that_is_stopped_goes_on_with_its_page_and_its_followers(tmp_path: Path, pause: float) -> None:
    rows = np.random.default_rng(1).normal(size=(ROWS, 3)) / 3.0
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header="a,b,c", comments="")
    words = ["run", str(tmp_path / "rows.csv"), "-k", "2", "--epsilon", "1", "--delta", "1e-6", "--row-norm", "1"]
    words += ["--release-every", str(EVERY), "--seed", "5", "--no-live"]
    alone = [sys.executable, "-c", COMMAND, *words, "--out", str(tmp_path / "alone.jsonl")]
    subprocess.run(alone, check=True, capture_output=True)
    book, out, store = tmp_path / "ledger.db", tmp_path / "out.jsonl", tmp_path / "run.db"
    assert main(["ledger", "budget", str(book), "rows", "--epsilon", "2", "--delta", "1e-5"]) == 0
    words += ["--out", str(out), "--store", str(store), "--ledger", str(book), "--data-set", "rows"]
    words += ["--read", f"rate={RATE}", "--serve", "--set", "serve.public=yes", "--set", "serve.port=0"]
    said = tmp_path / "said"
    with said.open("w") as errors:
        run = subprocess.Popen([sys.executable, "-c", COMMAND, *words], stderr=errors)
    try:
        until(lambda: URL.search(said.read_text()))
        port = int(URL.findall(said.read_text())[0])
        patient, hasty = Follower(port, 3600.0), Follower(port, min(2.0, pause / 2))
        held = 0
        for point in POINTS:
            until(lambda point=point: len(releases(out)) >= point)
            os.kill(run.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, run.pid, os.WSTOPPED | os.WNOWAIT)
            stood = len(releases(out))
            time.sleep(pause)
            assert len(releases(out)) == stood
            if status(store)["running"]:
                held += 1
                with pytest.raises(StoreLockedError):
                    Stream.resume(Store(store))
            os.kill(run.pid, signal.SIGCONT)
            assert state(port)["publishable"]
        assert held
        until(lambda: state(port)["ended"])
        shown = {name: table["rows"] for name, table in state(port)["tables"].items()}
        assert any(len(lines) > 1 for lines in shown.values())
        for follower in (patient, hasty):
            until(lambda follower=follower: follower.tables == shown)
            follower.end()
        assert (patient.connections, hasty.connections > 1) == (1, True)
    finally:
        run.send_signal(signal.SIGCONT)
        run.send_signal(signal.SIGINT)
        run.wait(30)
        run.kill()
    assert releases(out) == releases(tmp_path / "alone.jsonl")
    assert len(releases(out)) == ROWS // EVERY
    with Store(store) as kept:
        assert Stream.resume(kept).t == ROWS
    with Ledger(book) as ledger:
        assert len(ledger.balance("rows").entries) == 1
