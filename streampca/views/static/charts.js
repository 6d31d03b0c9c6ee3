"use strict";
// One panel: heading, chart, legend, the same data as a table. Used by the live page and by reports.
const Charts = (() => {
  const MOST = 100;
  const DASH = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 4], [12, 4], [1, 4]];
  const KIND = ["", "dash", "dots", "dash", "dash", "dash", "dots"];

  function make(kind, props, ...inside) {
    const made = document.createElement(kind);
    for (const [name, value] of Object.entries(props || {})) {
      if (name in made && name !== "role") made[name] = value; else made.setAttribute(name, value);
    }
    made.append(...inside);
    return made;
  }

  function number(value) {
    if (value === null || value === undefined) return "–";
    if (Number.isInteger(value)) return String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");
    if (value > 0.999 && value < 1) return (Math.floor(1e5 * value) / 1e5).toFixed(5); // never reads as all
    const size = Math.abs(value);
    return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  }

  const tick = (u, all) => all.map((v) => (v === null ? "" : v !== 0 && (Math.abs(v) >= 1e6 || Math.abs(v) < 1e-3)
    ? v.toExponential(0).replace("e+", "e") : v >= 1e4 ? v / 1e3 + "k" : String(Number(v.toPrecision(6)))));

  class Panel {
    constructor(spec) {
      this.spec = spec; this.log = spec.log; this.near = Boolean(spec.band); this.chart = null; this.data = null; this.at = null;
      this.lines = spec.series.slice();
      if (spec.band) this.lines.push([spec.band[0], spec.band[2] + ", low"], [spec.band[1], spec.band[2] + ", high"]);
      const id = "panel-" + spec.name;
      this.plot = make("div", { className: "plot", tabIndex: 0, role: "img", "aria-describedby": id + "-out" });
      this.legend = make("ul", { className: "legend" });
      this.out = make("output", { id: id + "-out", "aria-live": "polite" });
      this.body = make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": spec.title + ": data" });
      this.more = make("details", {}, make("summary", {}, "The same data as a table"), this.body);
      const head = make("div", { className: "head" }, make("h2", { id }, spec.title));
      if (spec.curator) head.append(make("span", { className: "mark" }, "curator only"));
      const what = spec.band ? "near" : "log"; // intervals are wide at first: see the later ones well
      const toggle = make("button", { type: "button", "aria-pressed": String(this[what]) }, spec.band ? "Fit the later half" : "Log scale");
      toggle.addEventListener("click", () => {
        this[what] = !this[what];
        toggle.setAttribute("aria-pressed", String(this[what]));
        this.rebuild();
      });
      head.append(toggle);
      this.root = make("section", { className: "card", "aria-labelledby": id }, head,
        make("p", { className: "note" }, spec.note), this.plot, this.legend, this.out, this.more);
      this.more.addEventListener("toggle", () => this.table());
      this.plot.addEventListener("keydown", (event) => this.key(event));
      this.plot.addEventListener("blur", () => { this.at = null; this.out.textContent = ""; });
      new ResizeObserver(() => this.size()).observe(this.plot);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.rebuild());
    }

    set(columns, rows) {
      const at = this.lines.map(([column]) => columns.indexOf(column));
      this.data = [rows.map((row) => row[0]), ...at.map((i) => rows.map((row) => row[i]))];
      if (this.chart && this.drawn === this.data.length) this.chart.setData(this.shown());
      else this.rebuild();
      const latest = rows.length ? number(this.data[0][rows.length - 1]) : "0";
      this.plot.setAttribute("aria-label", `Chart: ${this.spec.title}, up to row ${latest}. Arrow keys read values; the table below has the same data.`);
      this.label();
      this.table();
    }

    shown() { // a logarithm has no place for what is not positive
      if (!this.log) return this.data;
      return this.data.map((column, i) => (i ? column.map((v) => (v > 0 ? v : null)) : column));
    }

    later() {
      const end = this.data[0].length, from = this.data[0].findIndex((t) => t >= this.data[0][end - 1] / 2);
      const all = this.data.slice(1).flatMap((column) => column.slice(from)).filter((v) => v !== null);
      const low = Math.min(0, ...all), high = Math.max(0, ...all), room = 0.1 * (high - low) || 1;
      return [low - room, high + room];
    }

    rebuild() {
      if (!this.data) return;
      if (this.chart) this.chart.destroy();
      const css = getComputedStyle(this.plot), of = (name) => css.getPropertyValue(name).trim();
      const axis = (extra) => Object.assign({ stroke: of("--soft"), font: "12px " + css.fontFamily, labelFont: "12px " + css.fontFamily,
        grid: { stroke: of("--grid"), width: 1 }, ticks: { stroke: of("--grid"), width: 1, size: 5 } }, extra);
      const band = this.spec.band;
      this.drawn = this.data.length;
      this.chart = new uPlot({
        width: this.plot.clientWidth || 300, height: this.plot.clientHeight || 240, legend: { show: false },
        cursor: { drag: { x: false, y: false }, points: { size: 7 } },
        scales: { x: { time: false }, y: this.near ? { range: () => this.later() } : { distr: this.log ? 3 : 1 } },
        axes: [axis({ label: "rows seen", labelSize: 18, size: 30, space: 60, values: tick }),
          axis({ label: this.spec.unit, labelSize: 18, size: 52, values: tick })],
        series: [{}, ...this.lines.map((_, i) => ({
          stroke: of("--s" + (band ? 0 : i % 7)), width: 2, dash: band ? [] : DASH[i % 7], spanGaps: true, points: { show: this.data[0].length < 3 },
        }))],
        bands: band ? [{ series: [this.lines.length, this.lines.length - 1], fill: of("--s0") + "38" }] : [],
        hooks: { setCursor: [(u) => { if (this.at === null) this.label(u.cursor.idx); }] },
      }, this.shown(), this.plot);
      for (const canvas of this.plot.querySelectorAll("canvas")) canvas.setAttribute("aria-hidden", "true");
    }

    size() {
      const width = this.plot.clientWidth, height = this.plot.clientHeight;
      if (this.chart && width && (width !== this.chart.width || height !== this.chart.height)) this.chart.setSize({ width, height });
    }

    label(at) {
      const last = this.data[0].length - 1, i = at === null || at === undefined ? last : at;
      this.legend.replaceChildren(...this.lines.map(([, label], j) => make("li",
        { className: this.spec.band ? "s0" : `s${j % 7} ${KIND[j % 7]}` }, label + " ", make("b", {}, number(this.data[j + 1][i])))));
    }

    key(event) {
      const last = this.data ? this.data[0].length - 1 : -1;
      if (last < 0 || event.ctrlKey || event.altKey || event.metaKey) return;
      const from = this.at === null ? last : this.at, page = Math.max(1, Math.round(last / 10));
      const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last, PageUp: from - page, PageDown: from + page, Escape: null }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      if (to === null) { this.at = null; this.out.textContent = ""; this.label(); return; }
      this.at = this.at === null && event.key.startsWith("Arrow") ? last : Math.max(0, Math.min(last, to));
      this.chart.setCursor({ left: this.chart.valToPos(this.data[0][this.at], "x"), top: this.chart.height / 4 });
      this.label(this.at);
      this.out.textContent = `Row ${number(this.data[0][this.at])}: ` + this.lines.map(([, label], j) => `${label} ${number(this.data[j + 1][this.at])}`).join(", ");
    }

    table() {
      if (!this.more.open || !this.data) return;
      const from = Math.max(0, this.data[0].length - MOST), rows = [];
      for (let i = this.data[0].length - 1; i >= from; i--) {
        rows.push(make("tr", {}, make("th", { scope: "row" }, number(this.data[0][i])), ...this.lines.map((_, j) => make("td", {}, number(this.data[j + 1][i])))));
      }
      const caption = from ? `The latest ${MOST} of ${this.data[0].length} points, newest first` : "Newest first";
      this.body.replaceChildren(make("table", {}, make("caption", { className: "note" }, caption),
        make("thead", {}, make("tr", {}, ...["rows seen", ...this.lines.map(([, label]) => label)].map((name) => make("th", { scope: "col" }, name)))),
        make("tbody", {}, ...rows)));
    }
  }

  return { Panel, make, number };
})();
