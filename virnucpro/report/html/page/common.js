// What all pages share: their data, figures that fit their width, light and dark, print. Figures are
// drawn by Observable Plot as SVG. Colours are CSS variables, so that a change between light and dark
// needs no new drawing.
window.page = (() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const count = new Intl.NumberFormat("en").format;
  const style = { background: "none", fontFamily: "inherit", fontSize: "12px", overflow: "visible" };
  const bases = (n) =>
    n >= 1e9 ? `${+(n / 1e9).toFixed(1)} Gb` : n >= 1e6 ? `${+(n / 1e6).toFixed(1)} Mb`
      : n >= 1e3 ? `${+(n / 1e3).toFixed(1)} kb` : `${n}`;
  const tips = { fill: "var(--card)", stroke: "var(--line-strong)", fontSize: 12, lineHeight: 1.4 };

  // Draw again when the width of a figure changes, and at first sight.
  const drawings = new Map();
  const observer = new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) {
      const width = Math.floor(contentRect.width);
      const known = drawings.get(target);
      if (!known || width < 40 || Math.abs(known.width - width) < 2) continue;
      known.width = width;
      target.replaceChildren(...[known.draw(width)].flat());
    }
  });
  const figure = (target, draw, label) => {
    if (!target) return;
    target.setAttribute("role", "img");
    target.setAttribute("aria-label", label);
    drawings.set(target, { draw, width: 0 });
    observer.observe(target);
  };

  // Light and dark: the choice of the system, or of the button.
  const root = document.documentElement;
  document.getElementById("theme").addEventListener("click", () => {
    const now = root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
  });
  // Paper is light, and shows what is folded.
  let before;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    document.querySelectorAll("details:not(.numbers)").forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before;
    else delete root.dataset.theme;
  });
  return { data, count, bases, style, tips, figure };
})();
