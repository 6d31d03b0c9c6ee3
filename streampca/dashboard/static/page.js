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

  function status(text, kind) {
    const line = by("link");
    if (line.textContent !== text) line.textContent = text;
    line.className = kind;
  }

  function take(kind, next) {
    if (kind === "append" && state) {
      for (const [name, table] of Object.entries(next.tables)) {
        table.rows = (state.tables[name] ? state.tables[name].rows : []).concat(table.rows);
      }
    }
    state = next;
    status(state.ended || "Live", state.ended ? "" : "live");
    if (!queued) { queued = true; requestAnimationFrame(show); }
  }

  function show() {
    queued = false;
    if (by("title").textContent !== state.title) {
      by("title").textContent = state.title;
      document.title = state.title;
    }
    const curator = state.face === "curator", face = by("face");
    face.hidden = false;
    face.className = "face " + (curator ? "curator" : "public");
    face.textContent = curator
      ? "Curator only. Figures marked so are exact functions of raw rows and have no privacy at all: do not publish this page."
      : "Publishable. Everything on this page is computed from private releases alone, under their guarantee.";
    facts(state.facts);
    draw();
    loadings(state.loadings);
    pairs("guarantee", state.guarantee.map((w) => [w.heading, w.text]));
    pairs("parameters", state.parameters.map((p) => [p.label, p.value]));
    by("promise").hidden = !state.guarantee.length;
  }

  function facts(all) {
    const list = by("facts");
    while (list.children.length > all.length) list.lastChild.remove();
    all.forEach((fact, i) => {
      const cell = list.children[i] || list.appendChild(make("div", {}, make("dt"), make("dd")));
      cell.className = fact.curator ? "curator" : "";
      if (cell.firstChild.textContent !== fact.label) cell.firstChild.textContent = fact.label;
      if (cell.lastChild.textContent !== fact.value) cell.lastChild.textContent = fact.value;
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
      + "A component and its negative are the same: signs are kept alike over time.";
    by("subspace-note").textContent = note + (given.left_out ? ` The ${given.rows.length} heaviest features; ${given.left_out} more are not shown.` : "");
    const names = Array.from({ length: given.components }, (_, i) => `component ${i + 1}`);
    by("loadings").replaceChildren(
      make("thead", {}, make("tr", {}, ...["feature", ...names].map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, ...given.rows.map((row) => make("tr", {}, make("th", { scope: "row" }, row.feature), ...row.values.map((value) => {
        const cell = make("td", {}, value.toFixed(3).replace("-", "\u2212"));
        cell.style.backgroundColor = `rgba(var(${value < 0 ? "--neg" : "--pos"}), calc(${Math.min(1, Math.abs(value)).toFixed(3)} * var(--heat)))`;
        return cell;
      })))));
  }

  new Feed("/api/events", token(), {
    message: take,
    lost: (wait) => status(state && state.ended ? state.ended + "; the server does not answer" : `Connection lost; trying again in ${Math.round(wait / 100) / 10} s`, "lost"),
    refused: () => status("This page needs its token: open the link that streampca printed", "lost"),
  });
})();
