"""What the tests of the page share: a short run, and a client that says what it likes."""

import http.client
import json
import time

import numpy as np

import streampca as sp
from streampca.views.facts import Fact
from streampca.views.page import Page

#: Seconds until a test gives up on an event that must come. Busy machines are slow.
PATIENCE = 120.0

FEATURES = ("age", "income", "height", "pulse", "<b>spend</b>")


def bare(t: int = 1, k: int = 1, **fields) -> sp.Release:
    """A release of a basis of k unit vectors, without a guarantee."""
    return sp.Release(t=t, n_components=k, guarantee=sp.Guarantee.none("it is a test"), basis=np.eye(4, k), **fields)


class Run:
    """A stream that fills both pages, some rows at a time."""

    def __init__(self, *, seed: int = 1) -> None:
        self.rng = np.random.default_rng(seed)
        self.public, self.curator = Page(), Page(curator=True)
        algorithm = sp.PrivateFPL(
            n_components=2, epsilon=1.0, delta=1e-6, horizon=100_000, release_every=50, publish_regret=True
        )
        self.stream = sp.Stream(algorithm, row_norm=1.0, features=FEATURES, regret=sp.RegretLog(every=50), seed=seed)

    def push(self, rows: int) -> list[sp.Release]:
        block = self.rng.normal(size=(rows, len(FEATURES))) * np.array([0.5, 0.3, 0.1, 0.05, 0.05])
        before = self.stream.t
        releases = self.stream.push_many(block).releases
        self.public.add(releases)
        self.curator.add([*releases, *(record for record in self.stream.regret.history if record.t > before)])
        self.curator.show([Fact("Rows", str(self.stream.t), curator=True)])
        return releases


def until(holds):
    """Wait until a condition holds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)


def ask(port, path="/", method="GET", headers=(), body=None):
    """One request, as given; status, headers, body. Of events, the first only."""
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
        is_stream = "event-stream" in answer.headers.get("content-type", "") and method == "GET"
        text = b""
        if is_stream:
            while not text.startswith(b"data: "):
                text = answer.readline()
        return answer.status, dict(answer.getheaders()), text if is_stream else answer.read()
    finally:
        connection.close()


def event(port, token=""):
    """The state of the page in the first event."""
    status, _, text = ask(port, "/events", headers=[("Authorization", f"Bearer {token}")] if token else [])
    assert status == 200
    return json.loads(text.removeprefix(b"data: "))
