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
    const line = by("connection");
    if (line.textContent !== text) line.textContent = text;
    line.className = kind;
  }

  function take(next) {
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
    for (const id of ["notice", "lead"]) {
      if (by(id).textContent !== state[id]) by(id).textContent = state[id];
      by(id).hidden = !state[id];
    }
    by("notice").className = "notice " + (state.publishable ? "public" : "curator");
    facts(state.facts);
    draw();
    loadings(state.loadings);
    motion(state.motion);
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
      const label = fact.label + (fact.curator ? " (curator only)" : "");
      if (cell.firstChild.textContent !== label) cell.firstChild.textContent = label;
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

  function motion(given) {
    by("motion").hidden = !given || Boolean(by("data")); // a report has the picture
    if (by("motion").hidden) return;
    const svg = (kind, props, ...inside) => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
      for (const [name, value] of Object.entries(props)) made.setAttribute(name, value);
      made.append(...inside);
      return made;
    };
    const reach = 1.05 * Math.max(0.1, ...given.flatMap((way) => way.points.flat().map(Math.abs)));
    const at = ([x, y]) => [150 + 140 * x / reach, 150 - 140 * y / reach].map((v) => v.toFixed(1));
    const axes = svg("path", { d: "M10 150H290M150 10V290", class: "axes" });
    const ways = given.flatMap(({ points }, i) => {
      const [first, last] = [at(points[0]), at(points[points.length - 1])], kind = "s" + i;
      return [svg("polyline", { points: points.map((p) => at(p).join()).join(" "), class: kind + " trail" }),
        svg("circle", { cx: first[0], cy: first[1], r: 3, class: kind }),
        svg("line", { x1: 150, y1: 150, x2: last[0], y2: last[1], class: kind + " now" })];
    });
    const words = given.map(({ feature, points }) => `${feature} (${points[points.length - 1].join(", ")})`).join("; ");
    const list = make("ul", { className: "legend" }, ...given.map(({ feature }, i) => make("li", { className: "s" + i }, feature)));
    by("ways").replaceChildren(svg("svg", { viewBox: "0 0 300 300", role: "img", "aria-label": "Now at: " + words }, axes, ...ways), list);
  }

  const data = by("data"); // of a report: everything, in the file itself
  if (data) take(JSON.parse(data.textContent));
  else new Feed("/api/events", token(), {
    message: take,
    lost: (wait) => status(state && state.ended ? state.ended + "; the server does not answer" : `Connection lost; trying again in ${Math.round(wait / 100) / 10} s`, "lost"),
    refused: () => status("This page needs its token: open the link that streampca printed", "lost"),
  });
})();
