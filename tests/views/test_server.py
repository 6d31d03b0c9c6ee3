import json
import socket
import threading

import pytest

from streampca.errors import UsageError

pytest.importorskip("uvicorn")
from pages import PATIENCE, Run, ask, event, until

from streampca.views.server import Server

FILES = ("/", "/page.css", "/page.js", "/charts.js", "/uplot.js", "/uplot.css", "/uplot-LICENSE.txt", "/icon.svg")


@pytest.fixture(scope="module")
def run():
    made = Run()
    made.push(500)
    return made


@pytest.fixture(scope="module")
def public(run):
    with Server(run.public, port=0, names=["pca.example.org"]) as server:
        yield server


@pytest.fixture(scope="module")
def curator(run):
    with Server(run.curator, port=0) as server:
        yield server


def test_every_file_is_served_with_strict_headers(public):
    for path in (*FILES, "/events"):
        status, headers, body = ask(public.port, path)
        assert (status, bool(body)) == (200, True), path
        assert "'unsafe" not in headers["content-security-policy"]
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert not {name.lower() for name in headers} & {"server", "access-control-allow-origin", "set-cookie"}
        assert ask(public.port, path, "HEAD")[::2] == (200, b"")


def right(server):
    """The header with the token, of the curator's page."""
    return ("Authorization", f"Bearer {server.url.partition('#token=')[2]}")


def test_only_names_of_this_server_are_answered(public, curator):
    for host in (f"localhost:{public.port}", "127.0.0.1", "pca.example.org", "pca.example.org:8443"):
        assert ask(public.port, "/events", headers=[("Host", host)])[0] == 200
    for server in (public, curator):
        # A name of another site that was bound to this address.
        for host in ("evil.example", "127.0.0.1.evil.example", "pca.example.org.evil.example", "169.254.169.254", ""):
            assert ask(server.port, "/events", headers=[("Host", host), right(server)])[0] == 400, host
        assert ask(server.port, headers=[("Host", "127.0.0.1"), ("Host", "evil.example")])[0] == 400
    for name in ("*", "*.org", "pca.example.org:80", "http://x"):
        with pytest.raises(UsageError, match="expected a host name"):
            Server(Run().public, port=0, names=[name])


def test_other_sites_get_nothing(public, curator):
    for server in (public, curator):
        for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
            assert ask(server.port, "/events", headers=[("Sec-Fetch-Site", site), right(server)])[0] == status
        # A browser asks before it sends a header such as the token for another site: no answer allows it.
        asked = [("Origin", "http://evil.example"), ("Access-Control-Request-Headers", "authorization")]
        status, headers, _ = ask(server.port, "/events", "OPTIONS", asked)
        assert status == 405
        assert not [name for name in headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize(
    "path",
    ["/../pyproject.toml", "/..%2f..%2fpyproject.toml", "/../page.py", "//etc/passwd", "/%2e%2e/page.py", "/page.html",
     "/regret.csv", "/api/state?page=curator", "/\\;@", "/__init__.py", "/static/page.js", "/events/", "/events/x",
     "/" + "a" * 200, "/page.js%00.css"],
)  # fmt: skip
def test_nothing_else_is_read(public, path):
    assert ask(public.port, path)[0] in (400, 404)
    for method in ("POST", "PUT", "DELETE", "TRACE"):
        assert ask(public.port, path, method)[0] in (400, 404, 405)
        assert ask(public.port, "/events", method)[0] == 405


def test_the_curators_figures_want_the_token(curator):
    token = right(curator)[1].split()[1]
    for wrong in ([], [("Authorization", "Bearer x")], [("Authorization", token)], [("Authorization", "Bearer \xe9")],
                  [("Cookie", f"token={token}")], [("Authorization", f"Bearer {token}x")]):  # fmt: skip
        status, _, body = ask(curator.port, "/events", headers=wrong)
        assert (status, body) == (401, b"the token is missing or wrong\n")
    assert ask(curator.port, f"/events?token={token}")[0] == 401
    assert event(curator.port, token)["notice"].startswith("Curator only")


def test_every_server_has_a_token_of_its_own_and_stays_on_this_machine(run, public, curator):
    with Server(run.curator, port=0) as other:
        assert right(other) != right(curator)
        for server in (other, public):
            assert server._socket.getsockname()[0] == "127.0.0.1"
    assert "token" not in public.url


def test_a_port_that_is_taken_is_told(run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="another --port"):
            Server(run.public, port=taken.getsockname()[1])


def test_answers_are_sent_without_delay(run):
    with Server(run.public, port=0) as server, socket.create_connection(("127.0.0.1", server.port)):
        until(lambda: server._server.server_state.connections)
        (held,) = server._server.server_state.connections
        accepted = held.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_readers_get_what_changes_until_the_server_stops():
    run, heard = Run(), list[int]()
    run.push(50)

    def read():
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as reader:
            reader.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
            for line in reader.makefile("rb"):
                if line.startswith(b"data: "):
                    heard.append(len(json.loads(line[6:])["tables"]["releases"]["rows"]))

    reader = threading.Thread(target=read, daemon=True)
    with Server(run.public, port=0) as server:
        reader.start()
        until(lambda: heard == [1])
        run.push(50)
        until(lambda: heard == [1, 2])
    reader.join(PATIENCE)
    assert not reader.is_alive()
