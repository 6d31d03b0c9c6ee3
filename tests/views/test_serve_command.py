import json
import signal
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

from streampca.cli import main

pytest.importorskip("uvicorn")
from pages import PATIENCE, event, until

# Whoever started the tests in the background has SIGINT ignored.
MAIN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from streampca.cli import main
raise SystemExit(main())
"""
RUN = ["run", "rows.csv", "-k", "2", "--epsilon", "1", "--delta", "1e-6", "--bounds=-2:2", "--columns", "all"]
RUN += ["--horizon", "3000"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("run")
    rows = np.clip(np.random.default_rng(0).normal(size=(3000, 4)) * [1.0, 0.5, 0.1, 0.1], -2, 2)
    lines = ["a,b,c,secret", *(",".join(f"{v:.4f}" for v in row) for row in rows)]
    (made / "rows.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return made


@contextmanager
def command(folder, *words):
    """A command with a page, in a process of its own: the line with its link, and a function that reads the state."""
    port = ["--port", "0"] if words[0] == "serve" else ["--set", "serve.port=0"]
    started = [sys.executable, "-c", MAIN, *words, *port]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(started, cwd=folder, **quiet) as process:
        try:
            link = next(line for line in process.stderr if "page (" in line)
            if words[0] == "run":
                assert any("stays until" in line for line in process.stderr)
            address, _, token = link.split()[-1].partition("#token=")
            port = int(address.split(":")[2].strip("/"))
            yield link, lambda: event(port, token)
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=PATIENCE)[1]
            assert process.returncode == 0
            assert not token or token not in said
        finally:
            process.kill()


SERVED = [*RUN, "--release-every", "100", "--serve"]
REGRET = ["--regret", "regret.csv", "--set", "regret.every=100"]


def test_a_run_shows_itself_to_the_curator_and_stays(folder):
    with command(folder, *SERVED, *REGRET) as (link, state):
        assert "curator only" in link
        shown = state()
    assert not shown["publishable"]
    assert [row[0] for row in shown["tables"]["regret"]["rows"]] == list(range(100, 3001, 100))
    labels = {fact["label"] for fact in shown["facts"]}
    assert labels >= {"Rows per second", "Clipped", "Captured, exactly", "Latest release"}
    assert ["processor", "PrivateFPL"] in shown["parameters"]
    assert shown["ended"]


@pytest.mark.ci
def test_a_public_page_shows_releases_alone_and_not_the_name_of_the_file(folder):
    with command(folder, *SERVED, "--out", "public.jsonl", "--set", "serve.public=yes") as (link, state):
        assert "publishable" in link
        assert "token" not in link
        shown = state()
    assert (shown["publishable"], list(shown["tables"])) == (True, ["releases"])
    assert len(shown["tables"]["releases"]["rows"]) == 30
    assert not [fact for fact in shown["facts"] if fact["curator"]]
    assert "rows.csv" not in json.dumps(shown)


def test_a_folder_is_served_and_followed(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert main([*RUN, "--release-every", "100", *REGRET, "--force"]) == 0
    releases = folder / "releases.jsonl"
    whole = releases.read_text(encoding="utf-8").splitlines(keepends=True)
    releases.write_text("".join(whole[:11]), encoding="utf-8")
    with command(folder, "serve", ".") as (_, state):
        assert len(state()["tables"]["releases"]["rows"]) == 10
        with releases.open("a", encoding="utf-8") as file:
            file.writelines(whole[11:])
        until(lambda: [len(state()["tables"][name]["rows"]) for name in ("releases", "regret")] == [30, 30])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("serve nowhere", "no releases.jsonl"),
        ("serve . --public --regret regret.csv", "Omit it with --public"),
        ("serve . --regret regret.csv", "no such file"),
        (" ".join([*RUN, "--set serve.public=yes"]), "--set serve.public: it goes with --serve"),
        ("run rows.csv -k 1 --algorithm oja --row-norm 1 --serve --set serve.public=yes --set serve.port=0",
         "serve.public: there is no privacy guarantee"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told(tmp_path, capsys, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "releases.jsonl").touch()
    assert main(words.split()) == 2
    assert told in capsys.readouterr().err
