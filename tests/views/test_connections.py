import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from streampca.errors import BadParameterError

pytest.importorskip("uvicorn")
from streampca.views import connections
from streampca.views.server import Server

sys.path.insert(0, str(Path(__file__).parent))
from pages import PATIENCE, Run, ask, event, until


@pytest.fixture(scope="module")
def run():
    made = Run()
    made.push(100)
    return made


@pytest.fixture
def server(run, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(connections, "READ_SECONDS", 0.3)
    monkeypatch.setattr(connections, "most_connections", lambda: 40)
    with Server(run.public, port=0) as made:
        yield made


def connect(server, text=b"", address="127.0.0.1"):
    made = socket.create_connection(("127.0.0.1", server.port), PATIENCE, source_address=(address, 0))
    made.sendall(text)
    return made


def is_closed(connection):
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


GET = b"GET /api/state HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"


@pytest.mark.parametrize("asked", [b"", b"GET / HT", GET % 1])
def test_a_connection_that_asks_nothing_is_closed(server, asked):
    with connect(server, asked) as idle:
        assert is_closed(idle)


def test_parts_of_a_request_do_not_move_the_deadline(server):
    with connect(server) as slow:
        began = time.monotonic()
        with suppress(ConnectionResetError, BrokenPipeError):
            while time.monotonic() < began + PATIENCE:
                slow.sendall(b"G")
                time.sleep(0.05)
        assert time.monotonic() - began < PATIENCE / 2


def test_answers_are_sent_without_delay(server):
    with connect(server):
        until(lambda: server._server.server_state.connections)
        (held,) = server._server.server_state.connections
        accepted = held.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_second_request_has_a_deadline_too(server):
    with connect(server, GET % server.port + b"\r\n") as once:
        assert once.recv(1) == b"H"
        time.sleep(0.1)
        once.sendall(b"GET / HT")
        while once.recv(65536):
            pass


def test_a_request_that_is_complete_is_answered_however_long_it_takes(server):
    with connect(server, (GET % server.port).replace(b"state", b"events") + b"\r\n") as reader:
        time.sleep(0.6)
        assert b"data: " in reader.recv(65536)
        reader.settimeout(0.1)
        closed = False
        with suppress(TimeoutError):
            while not closed:
                closed = not reader.recv(65536)
        assert not closed


def test_idle_connections_do_not_shut_the_page(server, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_SECONDS", PATIENCE)
    held = [connect(server, address="127.0.0.2") for _ in range(60)]
    assert ask(server.port, "/api/state")[0] == 200
    assert sum(is_closed(one) for one in held[:20]) == 20
    for one in held:
        one.close()


def test_the_readers_of_one_address_do_not_lock_out_others(server):
    text = (GET % server.port).replace(b"state", b"events") + b"\r\n"
    held = [connect(server, text, address="127.0.0.2") for _ in range(45)]
    assert ask(server.port, "/api/state")[0] == 200
    for one in held:
        one.close()
    assert event(server.port)["publishable"]


def test_readers_who_come_at_once_are_counted(server, monkeypatch):
    monkeypatch.setattr("streampca.views.server._READERS_OF_ONE", 5)
    text = (GET % server.port).replace(b"state", b"events") + b"\r\n"

    def let_in():
        held = [connect(server, text, address="127.0.0.2") for _ in range(25)]
        answers = [one.recv(12) for one in held]
        for one in held:
            one.close()
        assert set(answers) == {b"HTTP/1.1 200", b"HTTP/1.1 503"}
        return answers.count(b"HTTP/1.1 200")

    assert let_in() == 5
    until(lambda: let_in() == 5)  # those who left are counted no more


def test_head_of_the_events_ends(server):
    status, headers, body = ask(server.port, "/api/events", "HEAD")
    assert (status, headers["content-type"], body) == (200, "text/event-stream; charset=utf-8", b"")


def test_more_connections_than_files(tmp_path, run):
    """A process that may open 128 files answers beside 200 open connections, and goes on after them."""
    (tmp_path / "releases.jsonl").write_text("".join(r.to_json() + "\n" for r in run.push(100)), encoding="utf-8")
    limited = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128));"
        "from streampca.cli import main; raise SystemExit(main())"
    )
    words = ["serve", str(tmp_path), "--public", "--port", "0"]
    process = subprocess.Popen([sys.executable, "-c", limited, *words], stderr=subprocess.PIPE, text=True)
    try:
        port = int(process.stderr.readline().split(":")[3].strip("/\n"))
        held = [socket.create_connection(("127.0.0.1", port), PATIENCE) for _ in range(200)]
        assert ask(port, "/api/state")[0] == 200
        for one in held:
            one.close()
        assert ask(port, "/api/state")[0] == 200
    finally:
        process.terminate()
        said = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode in (0, 130, -15), said


def test_a_token_is_kept(run, tmp_path):
    path = tmp_path / "token"
    with Server(run.curator, port=0, token_file=path) as first:
        token = first.url.split("#token=")[1]
    assert path.stat().st_mode & 0o777 == 0o600
    with Server(run.curator, port=first.port, token_file=path) as second:
        assert second.url == first.url
        assert ask(second.port, "/api/state", headers=[("Authorization", f"Bearer {token}")])[0] == 200


def test_an_unsafe_token_file_is_refused(run, tmp_path):
    wide = tmp_path / "wide"
    wide.write_text("x" * 32, encoding="ascii")
    wide.chmod(0o644)
    link = tmp_path / "link"
    link.symlink_to(wide)
    short = tmp_path / "short"
    short.touch(0o600)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for path, words in ((wide, "read by others"), (link, "token file"), (short, "no token"), (pipe, "token"),
                        (tmp_path, "token file")):  # fmt: skip
        with pytest.raises(BadParameterError, match=words):
            Server(run.curator, port=0, token_file=path)
