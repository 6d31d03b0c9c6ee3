"use strict";
(() => {
  const { Panel, make } = Charts, by = (id) => document.getElementById(id);
  const panels = new Map();
  let state = null, queued = false;

  function token() { // from the link into this tab only, and out of the address bar
    const given = new URLSearchParams(location.hash.slice(1)).get("token");
    if (given) {
      sessionStorage.setItem("token", given);
      history.replaceState(null, "", location.pathname);
    }
    return given || sessionStorage.getItem("token");
  }

  function say(node, text) { // only what changed is read out
    if (node.textContent !== text) node.textContent = text;
  }

  function status(text, kind) {
    say(by("connection"), text);
    by("connection").className = kind;
  }

  function take(next) {
    state = next;
    status(state.ended || "Live", state.ended ? "" : "live");
    if (!queued) { queued = true; requestAnimationFrame(show); }
  }

  function show() {
    queued = false;
    say(by("title"), state.title);
    document.title = state.title;
    for (const id of ["notice", "lead"]) {
      say(by(id), state[id]);
      by(id).hidden = !state[id];
    }
    by("notice").className = "notice " + (state.publishable ? "public" : "curator");
    facts(state.facts);
    draw();
    loadings(state.loadings);
    pairs("guarantee", state.guarantee);
    pairs("parameters", state.parameters);
    by("formal").textContent = state.formal;
    by("privacy").hidden = !state.guarantee.length;
  }

  function facts(all) {
    const list = by("facts");
    while (list.children.length > all.length) list.lastChild.remove();
    all.forEach((fact, i) => {
      const cell = list.children[i] || list.appendChild(make("div", {}, make("dt"), make("dd")));
      cell.className = (fact.curator ? "curator" : "") + (fact.value.length > 50 ? " wide" : "");
      say(cell.firstChild, fact.label + (fact.curator ? " (curator only)" : ""));
      say(cell.lastChild, fact.value);
    });
  }

  function draw() {
    const wanted = new Set();
    state.panels.forEach((spec, i) => {
      const key = JSON.stringify([spec.name, spec.series]);
      wanted.add(key);
      if (!panels.has(key)) panels.set(key, new Panel(spec));
      const panel = panels.get(key), table = state.tables[spec.table];
      if (by("panels").children[i] !== panel.root) by("panels").insertBefore(panel.root, by("panels").children[i] || null);
      panel.set(table.columns, table.rows);
    });
    for (const [key, panel] of panels) if (!wanted.has(key)) { panel.root.remove(); panels.delete(key); }
  }

  function pairs(id, all) {
    const key = JSON.stringify(all), list = by(id);
    if (list.dataset.shown === key) return;
    list.dataset.shown = key;
    list.replaceChildren(...all.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
  }

  function loadings(given) {
    by("subspace").hidden = !given || !given.components;
    if (!given || !given.components) return;
    const note = `Weights of the features in the components released at row ${Charts.number(given.t)}; blue is positive, orange negative. `
      + "A component and its negative are the same: signs are kept alike over time."
      + (given.rows.some((row) => row.bars) ? " \u00b1 is half an approximate 95 % interval, for the noise only." : "");
    by("subspace-note").textContent = note + (given.omitted ? ` The ${given.rows.length} heaviest features; ${given.omitted} more are not shown.` : "");
    const names = Array.from({ length: given.components }, (_, i) => `component ${i + 1}`);
    by("loadings").replaceChildren(
      make("thead", {}, make("tr", {}, ...["feature", ...names].map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {},
        ...given.heads.map(([name, ...cells]) => make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((text) => make("td", {}, text)))),
        ...given.rows.map((row) => make("tr", {}, make("th", { scope: "row" }, row.feature), ...row.values.map((value, i) => {
        const bar = row.bars ? ` \u00b1${row.bars[i].toFixed(2)}` : "";
        const cell = make("td", {}, (+value.toFixed(bar ? 2 : 4)).toFixed(bar ? 2 : 4).replace("-", "\u2212") + bar); // no -0.00
        cell.style.backgroundColor = `rgba(var(${value < 0 ? "--neg" : "--pos"}), calc(${Math.min(1, Math.abs(value)).toFixed(3)} * var(--heat)))`;
        return cell;
      })))));
  }

  // Server-sent events over fetch, not EventSource: the token travels in a header.
  async function follow(token) {
    const headers = token ? { Authorization: "Bearer " + token } : {};
    for (let wait = 500; ; wait = Math.min(2 * wait, 8000)) {
      const stop = new AbortController();
      try {
        const answer = await fetch("/events", { headers, signal: stop.signal, cache: "no-store", credentials: "omit" });
        if (answer.status === 401) {
          status("This page needs its token: open the link that streampca printed", "lost");
          return;
        }
        if (!answer.ok) throw new Error(String(answer.status));
        await read(answer.body.pipeThrough(new TextDecoderStream()).getReader(), stop, () => { wait = 500; });
      } catch (problem) { /* reported below, and tried again */ }
      stop.abort();
      const ended = state && state.ended ? state.ended + "; the server does not answer" : "";
      status(ended || `Connection lost; trying again in ${wait / 1000} s`, "lost");
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  async function read(reader, stop, received) {
    for (let text = ""; ;) {
      const timer = setTimeout(() => stop.abort(), 25000); // the server sends something every ten seconds
      const { value, done } = await reader.read();
      clearTimeout(timer);
      if (done) return;
      received();
      const events = (text + value).split("\n\n");
      text = events.pop();
      for (const event of events) if (event.startsWith("data: ")) take(JSON.parse(event.slice(6)));
    }
  }

  const data = by("data"); // of a report: everything, in the file itself
  if (data) take(JSON.parse(data.textContent));
  else follow(token());
})();
