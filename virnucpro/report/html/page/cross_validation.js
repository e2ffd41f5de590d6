// Charts of a cross-validation: one small panel for each kingdom, share or length.
(() => {
  "use strict";
  const { data, bases, style, tips, figure } = window.page;
  const panels = (id, all, draw) => {
    for (const one of all) {
      const card = document.createElement("div");
      const head = document.createElement("h3");
      const drawing = document.createElement("figure");
      head.textContent = one.title;
      drawing.className = "figure";
      card.append(head, drawing);
      document.getElementById(id).append(card);
      figure(drawing, draw(one), one.title);
    }
  };
  const common = (width) => ({ width, height: 190, marginLeft: 40, marginBottom: 36, marginTop: 8, style });
  const label = { labelAnchor: "center", labelArrow: "none" };

  // A figure with its interval, by length.
  const [shortest, longest] = data.lengths;
  const ticks = [100, 300, 1e3, 3e3, 1e4, 3e4].filter((one) => shortest <= one && one <= longest);
  const byLength = (least) => (one) => (width) => Plot.plot({
    ...common(width),
    x: { type: "log", domain: data.lengths, label: "bases", ticks, tickFormat: bases, inset: 8, ...label },
    y: { domain: [least, 1], label: null, grid: true, ticks: 4 },
    marks: [
      Plot.ruleX(one.points, { x: "bases", y1: "low", y2: "high", stroke: "var(--accent)", strokeOpacity: 0.55, strokeWidth: 2 }),
      Plot.lineY(one.points, { x: "bases", y: "value", stroke: "var(--accent)" }),
      Plot.dot(one.points, {
        x: "bases", y: "value", fill: "var(--accent)", r: 3, tip: tips,
        title: (d) => `${bases(d.bases)}: ${d.value.toFixed(3)}${d.low === d.high ? "" : `\n${d.low.toFixed(3)} to ${d.high.toFixed(3)}`}`,
      }),
    ],
  });
  const lowest = (all) => Math.max(0, Math.floor(20 * Math.min(0.95, ...all.flatMap((one) => one.points.map((d) => d.low)))) / 20);
  panels("auroc-figures", data.auroc, byLength(lowest(data.auroc)));
  panels("recall-figures", data.recall, byLength(0));
  panels("calibration-figures", data.calibration, (one) => (width) => Plot.plot({
    ...common(width),
    x: { domain: [0, 1], label: "probability", ticks: 5, ...label }, y: { domain: [0, 1], label: null, grid: true, ticks: 5 },
    marks: [
      Plot.line([[0, 0], [1, 1]], { stroke: "var(--line-strong)", strokeDasharray: "4 3" }),
      Plot.line(one.points, { x: "probability", y: "viral", stroke: "var(--accent)" }),
      Plot.dot(one.points, {
        x: "probability", y: "viral", fill: "var(--accent)", r: 3, tip: tips,
        title: (d) => `probability ${d.probability.toFixed(2)}: ${(100 * d.viral).toFixed(1)} % viral\n${d.pieces} sequences`,
      }),
    ],
  }));
})();
