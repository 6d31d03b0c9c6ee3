import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from streampca.cli import main

pytest.importorskip("uvicorn")
sys.path.insert(0, str(Path(__file__).parent))
from pages import PATIENCE, event, until

# Whoever started the tests in the background has SIGINT ignored.
MAIN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from streampca.cli import main
raise SystemExit(main())
"""
RUN = ["run", "rows.csv", "-k", "2", "--epsilon", "1", "--delta", "1e-6", "--bounds=-2:2", "--horizon", "3000"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("run")
    rows = np.clip(np.random.default_rng(0).normal(size=(3000, 4)) * [1.0, 0.5, 0.1, 0.1], -2, 2)
    lines = ["a,b,c,secret", *(",".join(f"{v:.4f}" for v in row) for row in rows)]
    (made / "rows.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return made


class Command:
    """A command in a process of its own, with a page."""

    def __init__(self, folder, *words):
        port = ["--port", "0"] if words[0] == "serve" else ["--set", "serve.port=0"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAIN, *words, *port], cwd=folder, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.said = ""
        line = self.wait_for("page (")
        self.whose, self.url = line[6 : line.index(")")], line.split()[-1]
        self.port = int(self.url.split(":")[2].partition("/")[0])
        self.token = self.url.partition("#token=")[2]

    def wait_for(self, words):
        for line in self.process.stderr:
            self.said += line
            if words in line:
                return line
        self.process.communicate(timeout=PATIENCE)
        raise AssertionError(self.said)

    def state(self):
        return event(self.port, self.token)

    def end(self):
        self.process.send_signal(signal.SIGINT)
        try:
            self.said += self.process.communicate(timeout=PATIENCE)[1]
        finally:
            self.process.kill()
        return self.process.returncode


def test_a_run_shows_itself_to_the_curator_and_stays(folder):
    shown = Command(
        folder, *RUN, "--release-every", "100", "--regret", "regret.csv", "--set", "regret.every=100", "--serve"
    )
    shown.wait_for("stays until")
    assert shown.whose.startswith("curator only")
    state = shown.state()
    assert not state["publishable"]
    assert [row[0] for row in state["tables"]["regret"]["rows"]] == list(range(100, 3001, 100))
    assert {fact["label"] for fact in state["facts"]} >= {
        "Rows per second",
        "Rows scaled onto the ball",
        "Captured, as the release predicts",
        "Captured, exactly",
        "Releases",
    }
    assert ["processor", "PrivateFPL"] in state["parameters"]
    assert state["ended"]
    assert shown.end() == 0
    assert shown.token not in shown.said.replace(shown.url, "")


def test_a_public_page_shows_releases_alone_and_not_the_name_of_the_file(folder):
    shown = Command(
        folder, *RUN, "--release-every", "100", "--out", "public.jsonl", "--serve", "--set", "serve.public=yes"
    )
    shown.wait_for("stays until")
    assert (shown.whose, shown.token) == ("publishable", "")
    state = shown.state()
    assert (state["publishable"], list(state["tables"])) == (True, ["releases"])
    assert len(state["tables"]["releases"]["rows"]) == 30
    assert not [fact for fact in state["facts"] if fact["curator"]]
    assert "rows.csv" not in json.dumps(state)
    assert shown.end() == 0


def test_a_folder_is_served_and_followed(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert main([*RUN, "--release-every", "100", "--regret", "regret.csv", "--set", "regret.every=100", "--force"]) == 0
    releases = folder / "releases.jsonl"
    whole = releases.read_text(encoding="utf-8").splitlines(keepends=True)
    releases.write_text("".join(whole[:11]), encoding="utf-8")
    shown = Command(folder, "serve", ".")
    assert len(shown.state()["tables"]["releases"]["rows"]) == 10
    with releases.open("a", encoding="utf-8") as file:
        file.writelines(whole[11:])
    until(lambda: [len(shown.state()["tables"][name]["rows"]) for name in ("releases", "regret")] == [30, 30])
    assert shown.end() == 0


def test_what_does_not_fit_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "releases.jsonl").write_text('{"kind": "header", "format": 1, "parameters": {}}\n', encoding="utf-8")
    for words, told in (
        (["serve", "nowhere"], "no releases.jsonl"),
        (["serve", ".", "--public", "--regret", "regret.csv"], "Omit it with --public"),
        (["serve", ".", "--regret", "regret.csv"], "no such file"),
        (["serve", ".", "--name", "*"], "expected a host name"),
        (["serve", ".", "--port", "99999"], "another --port"),
        ([*RUN, "--set", "serve.public=yes"], "--set serve.public: it goes with --serve"),
        (
            [
                "run",
                "rows.csv",
                "-k",
                "1",
                "--algorithm",
                "oja",
                "--row-norm",
                "1",
                "--serve",
                "--set",
                "serve.public=yes",
                "--set",
                "serve.port=0",
            ],
            "serve.public: there is no privacy guarantee",
        ),
    ):
        assert main(words) == 2
        assert told in capsys.readouterr().err
