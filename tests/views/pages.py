"""What the tests of the page share: a short run, and a client that says what it likes."""

from __future__ import annotations

import http.client
import json
import time

import numpy as np

import streampca as sp
from streampca.views.curator import CuratorPage
from streampca.views.public import PublicPage

#: Seconds until a test gives up on an event that must come. Busy machines are slow.
PATIENCE = 120.0

FEATURES = ("age", "income", "height", "pulse", "<b>spend</b>")


class Run:
    """A stream that fills both pages, some rows at a time."""

    def __init__(self, *, seed: int = 1) -> None:
        self.rng = np.random.default_rng(seed)
        self.public = PublicPage("a run", {"epsilon": 1.0})
        self.curator = CuratorPage(self.public)
        algorithm = sp.PrivateFPL(
            n_components=2, epsilon=1.0, delta=1e-6, horizon=100_000, release_every=50, publish_regret=True
        )
        self.stream = sp.Stream(algorithm, features=FEATURES, regret=sp.RegretLog(every=50), seed=seed)

    def push(self, rows: int) -> list[sp.Release]:
        block = self.rng.normal(size=(rows, len(FEATURES))) * np.array([0.5, 0.3, 0.1, 0.05, 0.05])
        before = self.stream.t
        releases = self.stream.push_many(block).releases
        self.public.add(releases)
        self.curator.add([record for record in self.stream.regret.history if record.t > before])
        self.curator.count(rows=self.stream.t, rows_per_second=1234.5)
        return releases


def until(holds):
    """Wait until a condition holds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)


def ask(port, path="/", method="GET", headers=(), body=None):
    """One request, as given; status, headers, body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        given = [("Host", f"127.0.0.1:{port}"), *headers]
        if any(name.lower() == "host" for name, _ in headers):
            given = list(headers)
        for name, value in given:
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def event(port, headers=()):
    """The data of the first event of the feed."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", "/api/events", headers=dict(headers))
        answer = connection.getresponse()
        found = {}
        while "data" not in found:
            name, _, value = answer.readline().decode().rstrip("\n").partition(": ")
            found[name] = value
        return json.loads(found["data"])
    finally:
        connection.close()
