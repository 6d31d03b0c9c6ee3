"""Attack the real command ``streampca serve --public``, and tell what it answered meanwhile.

    ulimit -n 8192; python tests/views/attack.py

The server may open 1024 files. Idle connections, then more connections than files, come from one address; readers of
events from one address as behind a proxy, and from another. After each attack, somebody else asks for the page.
"""

from __future__ import annotations

import http.client
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import streampca as sp
from streampca.release.file import Header

LIMITED = (
    "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024));"
    "from streampca.cli import main; raise SystemExit(main())"
)


def connect(port: int, address: str, text: str = "") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), 30, source_address=(address, 0))
    made.sendall(text.encode())
    return made


def ask(port: int, path: str = "/", method: str = "GET") -> tuple[int, float]:
    """Status, and milliseconds until all of the answer was there."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        answer.read()
        return answer.status, 1e3 * (time.perf_counter() - began)
    finally:
        connection.close()


def is_reading(reader: socket.socket) -> bool:
    """True if events come."""
    reader.settimeout(30)
    try:
        return b"200 OK" in reader.recv(4096)
    except OSError:
        return False


def attack(port: int) -> None:
    get = f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
    for what, count, address, text in (
        ("idle connections of one address", 300, "127.0.0.2", ""),
        ("half requests of one address", 300, "127.0.0.2", "GET / HT"),
        ("idle connections of one address, 1024 files", 1300, "127.0.0.2", ""),
        ("readers of events of one address", 33, "127.0.0.2", get),
        ("readers of events of one address", 200, "127.0.0.2", get),
        ("readers of events through a proxy on this machine", 200, "127.0.0.1", get),
    ):
        held = [connect(port, address, text) for _ in range(count)]
        reading = f", {sum(map(is_reading, held))} of them read" if text == get else ""
        asked = [ask(port), ask(port, "/api/state")]
        with connect(port, "127.0.0.3", get) as other:
            status = "reads" if is_reading(other) else "does not read"
        print(
            f"{count} {what}{reading}: somebody else gets {[code for code, _ in asked]} in "
            f"{max(took for _, took in asked):.0f} ms, and {status} events"
        )
        assert [code for code, _ in asked] == [200, 200]
        assert status == "reads"
        for one in held:
            one.close()
    print(f"HEAD of the events: {ask(port, '/api/events', 'HEAD')[0]}")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, max(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
    with tempfile.TemporaryDirectory() as folder:
        run = sp.Stream(sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6), regret=None)
        made = run.push_many(np.random.default_rng(0).normal(size=(50, 5)) / 3.0).releases
        lines = [Header(made[0].terms).to_json(), *(release.to_json(terms=False) for release in made)]
        Path(folder, "releases.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        words = ["serve", folder, "--public", "--port", "0"]
        server = subprocess.Popen([sys.executable, "-c", LIMITED, *words], stderr=subprocess.PIPE, text=True)
        try:
            assert server.stderr is not None
            attack(int(server.stderr.readline().split(":")[3].strip("/\n")))
            assert server.poll() is None
        finally:
            server.terminate()
            print(f"the server said: {server.communicate(timeout=30)[1]!r}")
