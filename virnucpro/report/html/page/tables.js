// Sortable, filterable, paged tables by Tabulator. All cells are text, never markup.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const several = data.samples.length > 1;
  const count = new Intl.NumberFormat("en").format;
  const rowsOf = (columns) => {
    const names = Object.keys(columns);
    return columns[names[0]].map((_, i) => Object.fromEntries([["id", i], ...names.map((name) => [name, columns[name][i]])]));
  };
  const element = (name, text, css) => {
    const made = document.createElement(name);
    made.textContent = text;
    if (css) made.className = css;
    return made;
  };
  const tracks = new Map(data.tracks.map((one, i) => [[one.sample, one.file, one.record, one.name].join("\t"), i]));
  const nameCell = (cell) => {
    const row = cell.getData();
    const number = tracks.get([row.sample, row.file ?? "", row.record ?? "", row.seq_name].join("\t"));
    if (number === undefined) return element("bdi", row.seq_name);
    const link = document.createElement("a");
    link.href = `#track-${number}`;
    link.append(element("bdi", row.seq_name));
    link.addEventListener("click", (event) => { event.preventDefault(); window.showTrack(number); });
    return link;
  };
  const callCell = (cell) => {
    const call = cell.getValue();
    return call == null ? "" : element("span", call.replace("not_scored", "not scored"), `badge ${call.replace("_", "-")}`);
  };
  const whole = (cell) => element("span", cell.getValue() == null ? "" : count(cell.getValue()));
  const decimal = (cell) => element("span", cell.getValue() == null ? "–" : cell.getValue().toFixed(4));
  const plain = (cell) => element("bdi", cell.getValue() == null ? "–" : String(cell.getValue()).replaceAll(",", ", "));
  // Filters: part of a text, or a least number.
  const label = (text) => ({ elementAttributes: { "aria-label": text } });
  const text = (title, field, more = {}) => ({
    title, field, headerFilter: "input", headerFilterPlaceholder: "contains", headerFilterParams: label(`Filter by ${title}`),
    formatter: plain, ...more,
  });
  const least = (wanted, value) => wanted === "" || Number.isNaN(+wanted) || (value != null && value >= +wanted);
  const number = (title, field, formatter, more = {}) => ({
    title, field, formatter, hozAlign: "right", headerHozAlign: "right", sorter: "number", headerSortStartingDir: "desc",
    sorterParams: { alignEmptyValues: "bottom" },
    headerFilter: "input", headerFilterPlaceholder: "at least", headerFilterFunc: least, headerFilterParams: label(`Least ${title}`), ...more,
  });
  const choice = (title, field, rows, more = {}) => {
    const values = [...new Set(rows.map((row) => row[field]).filter((value) => value != null))];
    return {
      title, field, formatter: plain, headerFilter: "list", headerFilterPlaceholder: "any", headerFilterFunc: "=",
      headerFilterParams: { values: values.sort(), clearable: true, ...label(`Filter by ${title}`) }, ...more,
    };
  };
  const used = (rows, field) => rows.some((row) => row[field] != null);
  const table = (id, rows, columns, pageSize) => {
    if (!document.getElementById(id)) return undefined;
    const made = new Tabulator(`#${id}`, {
      data: rows, columns, layout: "fitColumns", pagination: rows.length > 10, paginationSize: pageSize,
      paginationSizeSelector: [10, 25, 50, 100], paginationCounter: "rows", placeholder: "Nothing matches the filters.",
      columnDefaults: { minWidth: 92, headerTooltip: true, headerWordWrap: true }, debugInvalidOptions: true, headerFilterLiveFilterDelay: 150,
    });
    return made;
  };

  const records = rowsOf(data.records);
  for (const row of records) {
    const words = [row.status === "scored" ? null : row.status, row.reason, row.flags];
    row.note = [...new Set(words.filter(Boolean).flatMap((word) => word.split(",")))].join(",") || null;
  }
  // Columns of the run without a place of their own stand before the file.
  const placed = ["seq_name", "length", "probability", "score", "call", "tier", "topology", "likely_source", "file", "record"];
  const noted = ["status", "reason", "flags", "best_window"];
  const others = data.columns.filter(([name]) => ![...placed, ...noted].includes(name) && used(records, name)).map(([name, kind]) => {
    if (kind === "text" || kind === "name") return choice(name, name, records, { minWidth: 128 });
    return number(name, name, kind === "number" ? decimal : whole, { minWidth: 128 });
  });
  const recordColumns = [
    several ? choice("sample", "sample", records) : null,
    text("seq_name", "seq_name", { formatter: nameCell, minWidth: 170, widthGrow: 3 }),
    number("length", "length", whole, { minWidth: 88 }),
    used(records, "probability") ? number("probability", "probability", decimal, { minWidth: 124 }) : null,
    number("score", "score", decimal, { minWidth: 84 }),
    choice("call", "call", records, { formatter: callCell, minWidth: 104 }),
    used(records, "tier") ? choice("tier", "tier", records, { minWidth: 112 }) : null,
    used(records, "topology") ? choice("topology", "topology", records, { minWidth: 120 }) : null,
    used(records, "likely_source") ? choice("likely_source", "likely_source", records, { minWidth: 148 }) : null,
    used(records, "note") ? text("note", "note", { minWidth: 110 }) : null,
    ...others,
    used(records, "file") ? choice("file", "file", records, { minWidth: 110 }) : null,
    used(records, "record") ? number("record", "record", whole, { minWidth: 84 }) : null,
  ].filter(Boolean);
  const main = table("records-table", records, recordColumns, 25);
  if (main) {
    const shown = document.getElementById("records-count");
    main.on("dataFiltered", (filters, rows) => {
      shown.textContent = filters.length ? `${count(rows.length)} of ${count(records.length)} match the filters` : "";
    });
  }

  const regions = rowsOf(data.regions);
  if (regions.length) {
    table("regions-table", regions, [
      several ? choice("sample", "sample", regions) : null,
      text("seq_name", "seq_name", { formatter: nameCell, minWidth: 170, widthGrow: 3 }),
      number("start", "start", whole), number("end", "end", whole), number("length", "length", whole),
      choice("state", "state", regions, { formatter: callCell }),
      used(regions, "topology") ? choice("topology", "topology", regions, { minWidth: 160 }) : null,
      used(regions, "probability") ? number("probability", "probability", decimal, { minWidth: 124 }) : null,
      used(regions, "score") ? number("score", "score", decimal) : null,
      choice("file", "file", regions), text("record", "record", { minWidth: 84 }),
    ].filter(Boolean), 10);
  }

  if (several) {
    const share = (cell) => element("span", cell.getValue() == null ? "–" : `${(100 * cell.getValue()).toFixed(1)} %`);
    const samples = data.samples.map((one, id) => ({ id, ...one, share: one.records ? one.viral / one.records : null, state: one.partial ? "partial" : "complete" }));
    table("samples-table", samples, [
      text("sample", "sample", { minWidth: 150, widthGrow: 2 }),
      number("sequences", "records", whole, { minWidth: 108 }), number("bases", "bases", whole, { minWidth: 110 }),
      number("viral", "viral", whole), number("viral share", "share", share, { headerFilter: false }),
      used(samples, "prevalence") ? number("assumed share", "prevalence", share, { minWidth: 118, headerFilter: false }) : null,
      used(samples, "prevalence") ? number("expected false", "expected_false", decimal, { minWidth: 118 }) : null,
      number("viral bases", "viral_bases", whole, { minWidth: 110 }), number("ambiguous", "ambiguous", whole, { minWidth: 108 }),
      number("not scored", "not_scored", whole), choice("bundle", "bundle", samples), choice("state", "state", samples),
    ].filter(Boolean), 25);
  }
})();
