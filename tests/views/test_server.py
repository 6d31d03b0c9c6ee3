import socket
import sys
import threading
from pathlib import Path

import pytest

from streampca.errors import BadParameterError

pytest.importorskip("uvicorn")
from streampca.views.server import STATIC, Server, curator_app, public_app

sys.path.insert(0, str(Path(__file__).parent))
from pages import PATIENCE, Run, ask, event


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
    for path in (*STATIC, "/api/state"):
        status, headers, body = ask(public.port, path)
        assert (status, bool(body)) == (200, True), path
        assert "'unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "server" not in {name.lower() for name in headers}


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "pca.example.org.evil.example", ""])
def test_other_names_are_refused(public, host):
    assert ask(public.port, "/api/state", headers=[("Host", host)])[0] in (400, 421)


def test_names_that_were_given_are_answered(public):
    for host in (f"localhost:{public.port}", f"[::1]:{public.port}", "pca.example.org", "PCA.example.org"):
        assert ask(public.port, "/api/state", headers=[("Host", host)])[0] == 200
    two = [("Host", f"127.0.0.1:{public.port}"), ("Host", "evil.example")]
    assert ask(public.port, "/", headers=two)[0] in (400, 421)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ],
)
def test_other_sites_may_not_ask(public, name, value):
    assert ask(public.port, "/api/state", headers=[(name, value)])[0] == 403


def test_the_page_itself_and_links_to_it_may(public):
    own = [("Origin", f"http://127.0.0.1:{public.port}"), ("Sec-Fetch-Site", "same-origin")]
    assert ask(public.port, "/api/state", headers=own)[0] == 200
    link = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")]
    assert ask(public.port, "/", headers=link)[0] == 200


@pytest.mark.parametrize(
    "path",
    ["/../pyproject.toml", "/..%2f..%2fpyproject.toml", "/static/page.js", "//etc/passwd", "/%2e%2e/page.py",
     "/page.html", "/__init__.py", "/api", "/api/", "/api/state/x", "/page.css?x=1", "/" + "a" * 200,
     "/page.js%00.css"],
)  # fmt: skip
def test_nothing_else_is_read(public, path):
    assert ask(public.port, path)[0] in (400, 404)


def test_only_short_questions_are_answered(public):
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE"):
        assert ask(public.port, "/api/state", method)[0] == 405
    assert ask(public.port, "/", headers=[("Content-Length", "3")], body=b"abc")[0] == 413
    assert ask(public.port, "/", headers=[("X-Long", "a" * 40_000)])[0] in (400, 431)
    assert ask(public.port, "/", "HEAD")[2] == b""


def test_the_curators_figures_want_the_token(curator):
    token = curator.url.split("#token=")[1]
    right = ("Authorization", f"Bearer {token}")
    for wrong in ([], [("Authorization", "Bearer x")], [("Authorization", token)], [right, right],
                  [("Cookie", f"token={token}")], [("Authorization", f"Bearer {token}x")]):  # fmt: skip
        for path in ("/api/state", "/api/events"):
            assert ask(curator.port, path, headers=wrong)[0] == 401
    assert ask(curator.port, f"/api/state?token={token}")[0] == 404
    assert ask(curator.port, "/api/state", headers=[right])[0] == 200
    assert ask(curator.port, "/")[0] == 200


def test_the_curators_page_stays_on_this_machine(run):
    for host in ("0.0.0.0", "192.0.2.1", "example.org"):
        with pytest.raises(BadParameterError, match=r"127\.0\.0\.1 only"):
            Server(run.curator, host=host, port=0)
    with pytest.raises(BadParameterError, match="too short"):
        curator_app(run.curator, token="", hosts=["x"])


def test_a_port_that_is_taken_is_told(run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BadParameterError, match="another --port"):
            Server(run.public, port=taken.getsockname()[1])


def test_only_the_public_page_is_published(run):
    with pytest.raises(BadParameterError, match="may not be published"):
        public_app(run.curator, hosts=["x"])


def test_a_reader_is_sent_the_whole_page(run, public):
    rows = event(public.port)["tables"]["releases"]["rows"]
    run.push(100)
    assert [row[0] for row in event(public.port)["tables"]["releases"]["rows"]] == [row[0] for row in rows] + [550, 600]


def test_stopping_closes_connections(run):
    server = Server(run.public, port=0).start()
    ended = threading.Event()

    def read():
        try:
            ask(server.port, "/api/events")
        finally:
            ended.set()

    threading.Thread(target=read, daemon=True).start()
    event(server.port)
    server.stop()
    assert ended.wait(PATIENCE)
