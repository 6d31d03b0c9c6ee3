"""The page in a headless Chromium, driven over its debugging protocol.

Needs Chromium and its driver (``apt-get install chromium chromium-driver``) and ``pip install 'streampca[browser]'``;
skipped without. Screenshots go to the folder that the variable STREAMPCA_SHOTS names, or to pytest's.

    pytest -m browser tests/views
"""

import os
import shutil
import time
from importlib.resources import files
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install 'streampca[browser]'")
from pages import Run  # noqa: E402

from streampca.views.server import Server  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.ci,
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver on PATH"),
]
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="module")
def chrome(tmp_path_factory):
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield made
    made.quit()


@pytest.fixture(autouse=True)
def fresh(chrome):
    size(chrome, 1280)
    yield
    # No error on any page; the messages of a lost connection apart.
    log = [line["message"] for line in chrome.get_log("browser")]
    chrome.get("about:blank")
    assert [line for line in log if "ERR_" not in line and "Failed to load" not in line] == []


def size(chrome, width, *, dark=False, height=900):
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})


def until(chrome, script, seconds=60.0):
    """What a script returns as soon as it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = chrome.execute_script(f"return {script}")
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not true in {seconds} s: {script}; the page says {chrome.page_source[-2000:]}")


def reaches(t):
    spaced = f"{t:,}".replace(",", "\u202f")
    return f"[...document.querySelectorAll('.plot')].some(p => (p.ariaLabel || '').includes('up to row {spaced}.'))"


ROWS = "document.querySelectorAll('#panels section:last-child tbody tr').length"
OPEN = "document.querySelectorAll('details').forEach(d => d.open = true)"
#: Painted pixels of each chart.
INK = """[...document.querySelectorAll('.plot canvas')].map(c => {
  const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
  let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; })"""


def show(chrome, server, t):
    """Open the page, and wait until it shows row t."""
    chrome.get("about:blank")
    chrome.get(server.url)
    until(chrome, reaches(t))


def test_the_curators_page_grows_and_survives_a_reload(chrome):
    run = Run()
    run.push(1000)
    with Server(run.curator, port=0) as server:
        show(chrome, server, 1000)
        assert "token" not in chrome.current_url
        before = chrome.execute_script(f"return {INK}")
        assert all(n > 500 for n in before)
        assert "do not publish" in chrome.find_element("id", "notice").text
        for t in (2000, 3000):
            run.push(1000)
            until(chrome, reaches(t))
        chrome.execute_script(OPEN)
        assert until(chrome, ROWS) == 60
        chrome.refresh()
        until(chrome, reaches(3000))
        assert len(chrome.find_elements("css selector", "#panels section")) == 5
        run.curator.end()
        until(chrome, "document.getElementById('connection').textContent === 'The run has ended'")
        assert not chrome.find_elements("css selector", "#panels b b")
        assert "<b>spend</b>" in chrome.find_element("id", "loadings").text  # names are text, never markup


def test_without_the_token_nothing_is_shown(chrome):
    run = Run()
    run.push(200)
    with Server(run.curator, port=0) as server:
        chrome.get(server.url.partition("#")[0])
        until(chrome, "document.getElementById('connection').textContent.includes('token')")
        assert not chrome.find_elements("css selector", "#panels section")
        assert chrome.find_element("id", "facts").text == ""


def test_a_lost_connection_comes_back_where_it_was(chrome):
    run = Run()
    run.push(1000)
    with Server(run.public, port=0) as server:
        show(chrome, server, 1000)
        chrome.execute_script(OPEN)
        assert until(chrome, ROWS) == 20
    until(chrome, "document.getElementById('connection').textContent.includes('Connection lost')")
    run.push(500)
    with Server(run.public, port=server.port):
        until(chrome, reaches(1500))
        assert until(chrome, ROWS) == 30
        assert chrome.find_element("id", "connection").text == "Live"


def test_charts_can_be_read_with_the_keyboard(chrome):
    from selenium.webdriver.common.keys import Keys

    run = Run()
    run.push(1000)
    with Server(run.public, port=0) as server:
        show(chrome, server, 1000)
        body = chrome.find_element("tag name", "body")
        body.send_keys(Keys.TAB)
        assert chrome.switch_to.active_element.text == "Skip to the figures"
        stops = set()
        for _ in range(30):
            chrome.switch_to.active_element.send_keys(Keys.TAB)
            active = chrome.switch_to.active_element
            stops.add((active.tag_name, active.get_attribute("class")))
        assert {("div", "plot"), ("button", ""), ("summary", ""), ("div", "scroll")} <= stops
        plot = chrome.find_elements("css selector", ".plot")[1]
        plot.send_keys(Keys.ARROW_LEFT)
        plot.send_keys(Keys.ARROW_LEFT)
        assert "Row 950: component 1 " in chrome.find_elements("css selector", "output")[1].text
        button = chrome.find_elements("css selector", "#panels button")[1]
        button.send_keys(Keys.SPACE)
        assert button.get_attribute("aria-pressed") == "false"
        names = chrome.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        roles = {node.get("role", {}).get("value") for node in names}
        assert {"main", "heading", "status", "image", "button", "region", "term", "definition"} <= roles
        unnamed = [n for n in names if n.get("role", {}).get("value") in ("button", "image", "region", "link")
                   and not n.get("name", {}).get("value")]  # fmt: skip
        assert unnamed == []


def fits(chrome, folder, name, width, dark):
    """The page has the width and the colors of the screen; take a picture of it."""
    wide, high = chrome.execute_script("return ['scrollWidth', 'scrollHeight'].map(n => document.documentElement[n])")
    assert wide == width
    color = chrome.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (color == "rgb(17, 21, 28)") == dark
    size(chrome, width, dark=dark, height=high)
    time.sleep(0.3)
    assert chrome.save_screenshot(str(folder / f"{name}-{width}-{'dark' if dark else 'light'}.png"))


@pytest.fixture
def folder(tmp_path):
    made = Path(os.environ.get("STREAMPCA_SHOTS") or tmp_path)
    made.mkdir(parents=True, exist_ok=True)
    return made


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True), (1280, True), (390, False)])
def test_it_fits_any_screen_in_light_and_dark_and_axe_finds_nothing(chrome, folder, width, dark):
    axe = files(pytest.importorskip("axe_core_python")).joinpath("axe.min.js").read_text(encoding="utf-8")
    run = Run()
    run.push(5000)
    for name, page in (("curator", run.curator), ("public", run.public)):
        with Server(page, port=0) as server:
            size(chrome, width, dark=dark)
            show(chrome, server, 5000)
            fits(chrome, folder, name, width, dark)
            chrome.execute_script(OPEN)
            chrome.execute_script(axe)
            found = chrome.execute_async_script("axe.run().then(arguments[0])")
            assert len(found["passes"]) > 20
            assert [(v["id"], [n["html"] for n in v["nodes"]]) for v in found["violations"]] == []


def test_a_report_draws_from_its_own_file(chrome, folder, tmp_path):
    pytest.importorskip("matplotlib")
    from streampca.views.report import html

    run = Run()
    releases = run.push(3000)
    path = tmp_path / "report.html"
    path.write_text(html(run.curator, releases), encoding="utf-8")
    for width, dark in ((1280, False), (390, True)):
        size(chrome, width, dark=dark)
        chrome.get(path.as_uri())
        until(chrome, reaches(3000))
        assert all(n > 100 for n in chrome.execute_script(f"return {INK}"))
        drawn = chrome.execute_script("return [...document.images].map(i => i.complete && i.naturalWidth)")
        assert len(drawn) == 5
        assert all(drawn)
        fits(chrome, folder, "report", width, dark)
