// Charts of the report.
(() => {
  "use strict";
  const { data, count, bases, style, tips, figure } = window.page;
  const calls = ["viral", "ambiguous", "non-viral", "not_scored"];
  const words = { not_scored: "not scored" };
  const paint = {
    viral: "var(--viral)", ambiguous: "var(--ambiguous)",
    "non-viral": "var(--non-viral)", not_scored: "var(--not-scored)",
  };
  const color = { domain: calls, range: calls.map((call) => paint[call]) };
  const shorten = (text, n) => (text.length > n ? text.slice(0, n - 1) + "…" : text);

  // Bars of shares by call, with the number of sequences at the right.
  const shares = (rows, name) => (width) => {
    const flat = [];
    const ends = [];
    for (const row of rows) {
      const all = calls.reduce((sum, call) => sum + row[call], 0);
      let from = 0;
      for (const call of calls) {
        if (!row[call]) continue;
        const to = from + row[call] / all;
        flat.push({
          group: name(row), from, to, call,
          text: `${name(row)}\n${words[call] || call}: ${count(row[call])} of ${count(all)} (${(100 * row[call] / all).toFixed(1)} %)`,
        });
        from = to;
      }
      ends.push({ group: name(row), text: count(all) });
    }
    const longest = Math.max(...rows.map((row) => name(row).length));
    const left = Math.min(width * 0.42, 16 + 7 * longest);
    const letters = Math.max(6, Math.floor(left / 7));
    return Plot.plot({
      width, height: 44 + 26 * rows.length, marginLeft: left, marginRight: 76, marginTop: 8, marginBottom: 36, style,
      x: { domain: [0, 100], percent: true, label: "share of sequences (%)", labelAnchor: "center", ticks: 5, labelArrow: "none" },
      y: { domain: rows.map(name), label: null, tickSize: 0, tickFormat: (text) => shorten(text, letters), padding: 0.25 },
      color,
      marks: [
        Plot.barX(flat, { x1: "from", x2: "to", y: "group", fill: "call", title: "text", tip: tips, inset: 0.5 }),
        Plot.text(ends, { x: 1, y: "group", text: "text", textAnchor: "start", dx: 8, fill: "var(--muted)" }),
      ],
    });
  };
  const used = data.lengths.filter((row) => calls.some((call) => row[call]));
  if (used.length) figure(document.getElementById("lengths-figure"), shares(used, (row) => row.class), "Calls by length of the sequences");
  const several = data.samples.length > 1;
  const fileName = (row) => (several ? `${row.sample}: ${row.file}` : row.file);
  const files = data.files.filter((row) => calls.some((call) => row[call])).slice(0, 30);
  if (files.length) figure(document.getElementById("files-figure"), shares(files, fileName), "Calls by input file");
  if (several) {
    const rows = data.samples.filter((one) => one.records).slice(0, 60).map((one) => ({ ...one, "non-viral": one.non_viral }));
    figure(document.getElementById("samples-figure"), shares(rows, (row) => row.sample), "Calls by sample");
  }

  // Histograms, stacked by call.
  const histogram = (counts, label, line) => (width) => {
    const flat = [];
    for (let bin = 0; bin < data.bins; bin++) {
      let from = 0;
      for (const call of ["non-viral", "ambiguous", "viral"]) {
        const n = counts[call][bin];
        if (!n) continue;
        const [x1, x2] = [bin / data.bins, (bin + 1) / data.bins];
        flat.push({ x1, x2, y1: from, y2: from + n, call, text: `${x1.toFixed(3)} to ${x2.toFixed(3)}\n${call}: ${count(n)}` });
        from += n;
      }
    }
    return Plot.plot({
      width, height: 240, marginLeft: 58, marginBottom: 38, marginTop: 24, style,
      x: { domain: [0, 1], label, labelAnchor: "center", labelArrow: "none", ticks: 6 },
      y: { label: null, grid: true, tickFormat: "~s", ticks: 5 }, color,
      marks: [
        Plot.rectY(flat, { x1: "x1", x2: "x2", y1: "y1", y2: "y2", fill: "call", insetLeft: 0.5, insetRight: 0.5, title: "text", tip: tips }),
        Plot.text([""], { frameAnchor: "top-left", text: () => "sequences", dx: -30, dy: -18, fill: "var(--muted)" }),
        Plot.ruleY([0], { stroke: "var(--line-strong)" }),
        line == null ? null : Plot.ruleX([line], { stroke: "var(--ink)", strokeDasharray: "4 3" }),
      ],
    });
  };
  const onProbability = data.calibrated ? data.threshold : null;
  if (data.probability) figure(document.getElementById("probability-figure"), histogram(data.probability, "probability", onProbability), "Number of sequences by probability");
  if (data.score) figure(document.getElementById("score-figure"), histogram(data.score, "mean score of the windows", data.calibrated ? null : data.threshold), "Number of sequences by score");

  // One track for each of the best records.
  const track = (whole) => (width) => whole.rows.map((one) => {
    const points = one.starts.map((start, i) => ({ start: start - 1, end: one.ends[i], score: one.scores[i] }));
    const known = points.filter((point) => point.score != null);
    // Neighbouring windows overlap by some bases: a bar ends where the next begins.
    points.forEach((point, i) => { point.to = i + 1 < points.length ? Math.min(point.end, points[i + 1].start) : point.end; });
    const strip = one.regions.map(([start, end, state]) => ({ start: start - 1, end, state }));
    // Genes: forward ones above, reverse ones below; each ends in a point.
    const low = strip.length ? -0.62 : -0.34;
    const point = 12 * (one.end - one.start) / width;
    const genes = one.genes.flatMap(([start, end, strand], gene) => {
      const [middle, half] = [low + (strand > 0 ? 0.2 : 0.07), 0.06];
      const [back, front] = strand > 0 ? [start - 1, end] : [end, start - 1];
      const neck = front - strand * Math.min(point / 2, end - start);
      const corners = [[back, middle - half], [neck, middle - half], [front, middle], [neck, middle + half], [back, middle + half]];
      return corners.map(([x, y]) => ({ x, y, gene, text: `gene on the ${strand > 0 ? "forward" : "reverse"} strand\n${count(start)} – ${count(end)}` }));
    });
    const bottom = genes.length ? low : strip.length ? -0.3 : 0;
    return Plot.plot({
      width, height: 98 + (strip.length ? 24 : 0) + (genes.length ? 28 : 0), marginLeft: 34, marginRight: 20, marginTop: 8, marginBottom: 24, style,
      x: { domain: [one.start, one.end], label: null, tickFormat: bases, ticks: width / 110 },
      y: { domain: [bottom, 1], label: null, ticks: [0, 0.5, 1] },
      marks: [
        Plot.ruleY([0.5, 1], { stroke: "var(--line)" }),
        Plot.rect(known, {
          x1: "start", x2: "to", y1: 0, y2: "score", fill: (d) => (d.score >= 0.5 ? paint.viral : paint["non-viral"]),
          fillOpacity: 0.85, insetRight: width / points.length > 4 ? 0.5 : 0,
          title: (d) => `${count(d.start + 1)} – ${count(d.end)}\nscore ${d.score.toFixed(3)}`, tip: tips,
        }),
        Plot.ruleY([0], { stroke: "var(--line-strong)" }),
        strip.length ? Plot.rect(strip, {
          x1: "start", x2: "end", y1: -0.26, y2: -0.12, fill: (d) => paint[d.state] || "var(--not-scored)",
          title: (d) => `${d.state} region\n${count(d.start + 1)} – ${count(d.end)}`, tip: tips,
        }) : null,
        genes.length ? Plot.line(genes, {
          x: "x", y: "y", z: "gene", curve: "linear-closed", fill: "var(--muted)", stroke: "none", title: "text",
        }) : null,
      ],
    });
  });
  const element = (name, text, css) => {
    const made = document.createElement(name);
    if (text != null) made.textContent = text;
    if (css) made.className = css;
    return made;
  };
  const place = document.getElementById("tracks-figures");
  const cards = data.tracks.map((one, number) => {
    const card = element("article", null, "track");
    card.id = `track-${number}`;
    const head = element("h3");
    head.append(element("bdi", one.name), " ", element("span", words[one.call] || one.call, `badge ${one.call.replace("_", "-")}`));
    if (one.topology === "provirus_candidate") head.append(" ", element("span", "provirus candidate", "badge provirus"));
    const facts = [
      several ? one.sample : null, `${count(one.length)} bases`, `${count(one.windows)} ${one.windows === 1 ? "window" : "windows"}`,
      one.probability == null ? null : `probability ${one.probability.toFixed(4)}`, one.score == null ? null : `mean score ${one.score.toFixed(4)}`,
      one.source && one.source !== "NA" ? `likely source ${one.source.replaceAll("_", " ")}` : null,
      one.file ? `${one.file}, sequence ${one.record}` : null,
    ];
    const drawing = element("figure", null, "figure");
    card.append(head, element("p", facts.filter(Boolean).join(" · "), "hint"), drawing);
    figure(drawing, track(one), `Scores of the windows of ${one.name}`);
    return card;
  });
  const first = 6;
  if (place) place.append(...cards.slice(0, first));
  const more = document.getElementById("more-tracks");
  const showAll = () => { place.append(...cards.slice(first)); more.hidden = true; };
  if (more && cards.length > first) {
    more.hidden = false;
    more.addEventListener("click", showAll);
  }
  window.showTrack = (number) => {
    if (number >= first && !more.hidden) showAll();
    document.getElementById(`track-${number}`).scrollIntoView({ block: "center" });
  };
})();
