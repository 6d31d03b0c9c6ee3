"use strict";
// Charts of the report: the same panels as on the live page, from the data in this file.
(() => {
  const state = JSON.parse(document.getElementById("data").textContent);
  for (const spec of state.panels) {
    const panel = new Charts.Panel(spec), table = state.tables[spec.table];
    document.getElementById("panels").append(panel.root);
    panel.set(table.columns, table.rows);
  }
})();
