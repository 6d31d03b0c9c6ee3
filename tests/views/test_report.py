import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

import streampca as sp
from streampca.cli import main
from streampca.errors import BadParameterError, NoReleaseError
from streampca.regret.regret import RegretLog
from streampca.release.file import Header
from streampca.store import Store

pytest.importorskip("matplotlib")
from streampca.views.plots import encoded
from streampca.views.report import Run, curve_pictures, html, read_run, subspace_pictures, write_pictures

NASTY = ("</script><img src=x onerror=alert(1)>", "a$b$", '"&<b>', "plain", "x" * 80)


def a_stream(store=None, rows=1500):
    stream = sp.Stream(
        sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, release_every=50, publish_regret=True),
        features=NASTY, regret=RegretLog(every=50), seed=None if store else 5, store=store,
    )  # fmt: skip
    block = np.random.default_rng(0).normal(size=(rows, 5)) * np.array([0.6, 0.4, 0.1, 0.1, 0.1])
    return stream, stream.push_many(block).releases


@pytest.fixture(scope="module")
def made():
    stream, releases = a_stream()
    return releases, stream.regret.history


@pytest.fixture(scope="module")
def public(made):
    return html(Run.of(made[0], title="a <b>title</b>"))


class Elements(HTMLParser):
    """Every element, its attributes, and the text of scripts."""

    def __init__(self, text):
        super().__init__()
        self.all, self.scripts, self.text, self._in = [], [], "", False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.all.append((tag, dict(attrs)))
        self._in = tag == "script"
        if self._in:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._in = False

    def handle_data(self, data):
        if self._in:
            self.scripts[-1] += data
        else:
            self.text += data


def test_a_report_needs_nothing_else(public):
    found = Elements(public)
    for tag, attributes in found.all:
        for name in ("src", "href", "srcset", "action"):
            assert attributes.get(name, "data:").startswith(("data:", "#")), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
    policy = next(a["content"] for _, a in found.all if a.get("http-equiv"))
    assert "default-src 'none'" in policy
    data, *code = found.scripts
    for script in code:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy
    assert len(code) == 3
    assert {panel["name"] for panel in json.loads(data)["panels"]} == {"intervals", "values", "share", "angles"}
    assert len(public) < 700_000
    assert "Permission is hereby granted" in public  # the license of uPlot
    assert "Connecting" not in Elements(public).text


def test_a_report_can_be_read_without_javascript(made, public):
    (without,) = re.findall("<noscript>(.*?)</noscript>", public, flags=re.S)
    for words in ("The charts need JavaScript", "Publishable.", "What is protected", "2.72 times", "Releases"):
        assert words in without
    assert "curator" not in without
    for words in ("A 2-dimensional subspace of 5 features", "Caveat", "(1, 1e-06)-DP"):
        assert words in public
    assert public.count("<img") == 5
    (exact,) = re.findall("<noscript>(.*?)</noscript>", html(Run.of(*made)), flags=re.S)
    assert "Regret per row (curator only)" in exact


def test_names_are_text_and_never_markup(public):
    assert "onerror=alert" in public  # as text
    assert not [attributes for _, attributes in Elements(public).all if "onerror" in attributes]
    assert "<b>title" not in public


def test_the_curators_figures_are_absent_or_marked(made, public):
    releases, records = made
    exact = html(Run.of(releases, records))
    values = [f"{value:.6g}" for r in records for value in (r.average, r.captured, r.opt / r.t)]
    assert any(value in exact for value in values)
    assert not any(value in public for value in values if len(value) > 6)
    for words in ("curator only", "Curator only"):
        assert words in exact
        assert words not in Elements(public).scripts[0]
    assert "do not publish this page" in exact
    assert "do not publish" not in public
    assert not [p.name for p in curve_pictures(Run.of(releases)) if "curator" in p.name]
    marked = [p for p in curve_pictures(Run.of(releases, records)) if p.name in ("curator-regret", "curator-captured")]
    assert len(marked) == 2
    assert all("curator only" in picture.draw(False).get_supxlabel() for picture in marked)


def test_pictures_are_files(made, tmp_path):
    run = Run.of(*made)
    svg = write_pictures(run, tmp_path / "svg", "svg")
    shown = {"scree", "loadings", "biplot", "loadings-over-time", "motion", "values", "curator-regret"}
    assert {p.stem for p in svg} >= shown
    assert all(ElementTree.fromstring(p.read_bytes()).tag.endswith("svg") for p in svg)
    again = next(iter(subspace_pictures(run)))
    assert encoded(again.draw(False), "svg") == (tmp_path / "svg" / f"{again.name}.svg").read_bytes()
    few = Run.of([made[0][-1]])
    png = write_pictures(few, tmp_path / "png", "png")
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in png)
    assert "loadings-over-time" not in {p.stem for p in png}


def test_loadings_do_not_flip(made):
    releases = made[0][-20:]
    flipped = []
    for i, release in enumerate(releases):
        signs = np.array([1.0, -1.0]) if i % 2 else np.array([-1.0, 1.0])
        flipped.append(sp.Release(t=release.t, n_components=2, guarantee=release.guarantee, features=NASTY,
                                  basis=release.subspace.basis * signs))  # fmt: skip
    for axes in flipped[-1].plot("over-time", past=flipped[:-1]).axes:
        assert max(np.abs(np.diff(line.get_ydata())).max() for line in axes.lines) < 0.5


def test_every_kind_of_release_has_its_report():
    none = sp.Guarantee.none("it is a test")
    bare = sp.Release(t=3, n_components=1, guarantee=none, basis=np.eye(4, 1))
    empty = sp.Release(t=3, n_components=0, guarantee=none, basis=np.zeros((4, 0)))
    many = sp.Release.of_gram(np.diag(np.arange(60.0, 0.0, -1.0)), t=9, n_components=8, guarantee=none)
    for release in (bare, empty):
        text = html(Run.of([release]))
        assert "Nothing: it is a test" in text
        assert "Not private." in text
        assert "Publishable" not in text
    assert {p.name for p in subspace_pictures(Run.of([empty]))} == set()
    assert {p.name for p in subspace_pictures(Run.of([many]))} == {"scree", "loadings", "biplot"}
    with pytest.raises(NoReleaseError, match="no release to report on"):
        Run.of([])


def test_releases_plot_themselves(made):
    release = made[0][-1]
    assert release.plot().axes[0].get_title(loc="left") == "Loadings"
    assert "Biplot" in release.plot("biplot", dark=True).axes[0].get_title(loc="left")
    assert "Eigenvalues" in release.plot("scree").axes[0].get_title(loc="left")
    with pytest.raises(BadParameterError, match="'heatmap' is not known"):
        release.plot("heatmap")
    bare = sp.Release(t=3, n_components=1, guarantee=release.guarantee, basis=np.eye(4, 1))
    with pytest.raises(NoReleaseError, match="no eigenvalues"):
        bare.plot("scree")


def test_error_bars_are_as_long_as_the_noise():
    # sd of an eigenvalue's error against the bar's, 600 draws: its relative sd is 1/sqrt(1200) = 2.9 %,
    # so 4.5 sd is 13 % (false alarm below 1e-5), and 2/3 or 3/2 of the length would be refused.
    rng = np.random.default_rng(0)
    exact, std = np.diag([900.0, 500.0, 200.0, 10.0, 5.0]), 3.0
    found = []
    for _ in range(600):
        noise = rng.normal(size=(5, 5)) * std / np.sqrt(2.0)
        noise = np.triu(noise, 1)
        noise = noise + noise.T + np.diag(rng.normal(size=5) * std)
        found.append(np.linalg.eigvalsh(exact + noise)[::-1][0])
    release = sp.Release.of_gram(exact, t=1, n_components=3, guarantee=sp.Guarantee.none("test"), noise_std=std)
    (bars,) = [c for c in release.plot("scree").axes[0].containers if c.get_label() != "" and hasattr(c, "has_yerr")]
    (segments,) = bars[2]
    low, high = segments.get_segments()[0][:, 1]
    half = (high - low) / 2.0 / 1.959963984540054
    assert float(np.std(found)) == pytest.approx(half, rel=0.13)
    assert float(np.std(found)) != pytest.approx(1.5 * half, rel=0.13)
    assert float(np.std(found)) != pytest.approx(2.0 / 3.0 * half, rel=0.13)


def test_the_command_reads_files_and_stores(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = Store("run.db")
    _, releases = a_stream(store, rows=300)
    store.close()
    assert main(["report", "run.db"]) == 0
    assert "publishable: report.html" in capsys.readouterr().err
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "streampca · PrivateFPL, k = 2: report" in text
    assert main(["report", "run.db"]) == 2
    assert "--force" in capsys.readouterr().err
    header = Header(releases[0].terms, {"processor": "PrivateFPL"}).to_json()
    lines = "\n".join([header, *(release.to_json(terms=False) for release in releases)])
    (tmp_path / "releases.jsonl").write_text(lines + "\n", encoding="utf-8")
    (tmp_path / "regret.csv").write_text(
        "# curator only: x\nt,reward,opt,regret,bound,captured\n9,1.0,2.0,1.0,3.0,0.5\n"
    )
    assert main(["report", ".", "-o", "out/public.html"]) == 0
    public = (tmp_path / "out/public.html").read_text()
    assert "curator only" not in re.sub(r"<script.*?</script>", "", public, flags=re.S)
    exact = ["report", ".", "-o", "exact.html", "--regret", "regret.csv", "--pictures", "pics", "--kind", "png"]
    assert main(exact) == 0
    assert "curator only: exact.html" in capsys.readouterr().err
    assert list((tmp_path / "pics").glob("curator-*.png"))
    assert main(["report", ".", "-o", "no.html", "--regret", "none.csv"]) == 2


def test_long_runs_are_thinned_to_the_last_release():
    releases = [
        sp.Release(t=t, n_components=1, guarantee=sp.Guarantee.none("test"), basis=np.eye(3, 1)) for t in range(1, 2002)
    ]
    run = Run.of(releases)
    assert len(run.releases) <= 512
    assert run.releases[-1].t == 2001


def test_a_run_can_be_read_again(tmp_path, made):
    header = json.dumps({"kind": "header", "format": 1, "parameters": {}})
    path = tmp_path / "releases.jsonl"
    path.write_text("\n".join([header, *(r.to_json() for r in made[0])]) + "\n", encoding="utf-8")
    run = read_run(path)
    assert [r.t for r in run.releases] == [r.t for r in made[0]]
    assert run.page.is_publishable
