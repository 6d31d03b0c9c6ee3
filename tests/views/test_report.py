import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser
from itertools import islice
from xml.etree import ElementTree

import numpy as np
import pytest
from dense_forms import gram_release

import streampca as sp
from streampca.cli import main
from streampca.errors import BadParameterError, NoReleaseError
from streampca.release.file import Header

pytest.importorskip("matplotlib")
from pages import bare

from streampca.views import report
from streampca.views.plots import encoded
from streampca.views.report import html, read_run, subspace_pictures

NASTY = ("</script><img src=x onerror=alert(1)>", "a$b$", '"&<b>', "plain", "x" * 80)


def a_stream(store=None, rows=1500):
    stream = sp.Stream(
        sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, release_every=50, publish_regret=True), row_norm=1.0,
        features=NASTY, regret=sp.RegretLog(every=50), seed=None if store else 5, store=store,
    )  # fmt: skip
    block = np.random.default_rng(0).normal(size=(rows, 5)) * np.array([0.6, 0.4, 0.1, 0.1, 0.1])
    return stream, stream.push_many(block).releases


@pytest.fixture(scope="module")
def made():
    stream, releases = a_stream()
    return releases, stream.regret.history


def write(folder, releases, processor="PrivateFPL"):
    """Write the files of a run."""
    header = Header((releases or [bare()])[0].terms, {"processor": processor})
    lines = [header.to_json(), *(release.to_json() for release in releases)]
    (folder / "releases.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory):
    """A run with its exact regret."""
    folder = write(tmp_path_factory.mktemp("run"), made[0], "a <b>title</b>")
    names = ("t", "reward", "opt", "regret", "bound", "captured")
    lines = [",".join(repr(getattr(record, name) or math.nan) for name in names) for record in made[1]]
    (folder / "regret.csv").write_text("\n".join(["# curator only", ",".join(names), *lines]) + "\n")
    return folder


@pytest.fixture(scope="module")
def public(folder, made):
    page, releases = read_run(folder)
    assert page.is_publishable
    assert [r.t for r in releases] == [r.t for r in made[0]]
    return html(page, releases)


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
    assert {panel["name"] for panel in json.loads(data)["panels"]} == {"intervals", "values", "angles"}
    assert len(public) < 700_000
    assert "Permission is hereby granted" in public  # the license of uPlot
    assert "Connecting" not in found.text
    assert sum(tag == "img" for tag, _ in found.all) == 5
    for words in ("5 columns", "Caveat", "(1, 1e-06)-DP", "2.72 times"):
        assert words in data


def test_names_are_text_and_never_markup(public):
    assert "onerror=alert" in public  # as text
    assert not [attributes for _, attributes in Elements(public).all if "onerror" in attributes]
    assert "<b>title" not in public


def test_the_curators_figures_are_absent_or_marked(made, folder):
    values = [f"{value:.6g}" for r in made[1] for value in (r.average, r.captured, r.per_row(r.opt))]
    public, exact = (html(*read_run(folder, *regret)) for regret in ((), (folder / "regret.csv",)))
    assert any(value in exact for value in values)
    assert not any(value in public for value in values if len(value) > 6)
    for words in ("curator only", "Curator only"):
        assert words in exact
        assert words not in Elements(public).scripts[0]
    assert "do not publish this page" in exact
    assert "do not publish" not in public


def test_equal_pictures_are_equal_files(made):
    one, other = (encoded(made[0][-1].plot("biplot").figure) for _ in range(2))
    assert one == other
    assert ElementTree.fromstring(one).tag.endswith("svg")


def test_loadings_over_time_neither_flip_nor_swap(made):
    turned = []
    for i, release in enumerate(made[0][-20:]):
        basis = release.subspace.basis * [1.0, -1.0] if i % 2 else -release.subspace.basis[:, ::-1]
        turned.append(sp.Release(t=release.t, n_components=2, guarantee=release.guarantee, basis=basis))
    for axes in turned[-1].plot("over-time", past=turned[:-1]).figure.axes:
        assert max(np.abs(np.diff(line.get_ydata())).max() for line in axes.lines) < 0.5


def test_every_kind_of_release_has_its_report(tmp_path):
    none = sp.Guarantee.none("it is a test")
    empty, one = bare(3, 0), bare(3)
    many = gram_release(np.diag(np.arange(60.0, 0.0, -1.0)), t=9, n_components=8, guarantee=none)
    text = html(*read_run(write(tmp_path, [empty])))
    assert "Nothing: it is a test" in text
    assert "Not private." in text
    assert "Publishable" not in text
    drawn = ((empty, set()), (one, {"Loadings", "Biplot"}), (many, {"Scree", "Loadings", "Biplot"}))
    for release, titles in drawn:
        assert {title for title, *_ in subspace_pictures([release], None)} == titles
    with pytest.raises(NoReleaseError, match="no release to report on"):
        read_run(write(tmp_path, []))
    releases = read_run(write(tmp_path, [bare(t) for t in range(1, 2002)]))[1]
    assert len(releases) <= 513
    assert releases[-1].t == 2001


def test_releases_plot_themselves(made):
    release = made[0][-1]
    assert release.plot().figure.axes[0].get_title(loc="left") == "Loadings"
    assert "Biplot" in release.plot("biplot").figure.axes[0].get_title(loc="left")
    assert "Eigenvalues" in release.plot("scree").figure.axes[0].get_title(loc="left")
    with pytest.raises(BadParameterError, match="kind='heatmap'"):
        release.plot("heatmap")
    with pytest.raises(NoReleaseError, match="no eigenvalues"):
        bare().plot("scree")


def test_what_does_not_stand_out_is_drawn_hollow(made):
    release = gram_release(
        np.diag([90.0, 9.0, 5.0, 1.0]), t=9, n_components=3, noise_std=4.0, guarantee=made[0][0].guarantee
    )
    assert release.n_clear == 1
    words = "components 2 to 3 do not stand out"
    for kind in ("loadings", "biplot", "scree"):
        assert (words in release.plot(kind).figure.axes[0].get_title(loc="left")) == (kind != "biplot")
    assert "component 2 does not stand out" in release.plot("biplot").figure.axes[0].get_title(loc="left")
    assert len(release.plot().figure.axes[0].texts) == 4  # numbers of the first column only
    assert [bar.get_fill() for bar in release.plot("scree").figure.axes[0].patches[:4]] == [True, False, False, True]
    over_time = release.plot("over-time", past=[release.replaced(t=8)]).figure
    assert [axes.lines[0].get_alpha() for axes in over_time.axes] == [1.0, 0.3, 0.3]
    assert words in release.plot("motion", past=[release.replaced(t=8)]).figure.axes[0].get_title(loc="left")
    noise = release.replaced(noise_std=90.0)
    assert [title for title, *_ in subspace_pictures([noise], noise.n_clear)] == ["Scree"]


def test_error_bars_are_as_long_as_the_noise():
    # To first order an eigenvalue of exact + noise errs by N(0, noise_std**2): bars are 1.96 of it, per row.
    release = gram_release(
        np.diag([900.0, 500.0, 200.0, 10.0]), t=10, n_components=3, guarantee=sp.Guarantee.none("test"), noise_std=3.0
    )
    (bars,) = [c for c in release.plot("scree").figure.axes[0].containers if hasattr(c, "has_yerr")]
    low, high = bars[2][0].get_segments()[0][:, 1]
    assert (low + high, high - low) == pytest.approx((180.0, 2 * 1.959964 * 0.3))


def test_the_command_reads_files_and_stores(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pictures = report.subspace_pictures
    # Drawing takes seconds.
    monkeypatch.setattr(report, "subspace_pictures", lambda releases, clear: islice(pictures(releases, clear), 1))
    store = sp.Store("run.db")
    _, releases = a_stream(store, rows=300)
    store.close()
    assert main(["report", "run.db"]) == 0
    assert "publishable: report.html" in capsys.readouterr().err
    assert "streampca · PrivateFPL, k = 2: report" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert main(["report", "run.db"]) == 2
    assert "--force" in capsys.readouterr().err
    write(tmp_path, releases)
    (tmp_path / "regret.csv").write_text(
        "# curator only: x\nt,reward,opt,regret,bound,captured\n9,1.0,2.0,1.0,3.0,0.5\n"
    )
    assert main(["report", ".", "-o", "out/public.html"]) == 2
    assert "there is no folder out" in capsys.readouterr().err
    assert main(["report", ".", "-o", "public.html"]) == 0
    public = (tmp_path / "public.html").read_text(encoding="utf-8")
    assert "curator only" not in re.sub(r"<script.*?</script>", "", public, flags=re.S)
    assert main(["report", ".", "-o", "exact.html", "--regret", "regret.csv"]) == 0
    assert "curator only: exact.html" in capsys.readouterr().err
    assert (tmp_path / "exact.html").stat().st_mode & 0o777 == 0o600
    assert main(["report", ".", "-o", "no.html", "--regret", "none.csv"]) == 2
