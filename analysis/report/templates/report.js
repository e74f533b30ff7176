"use strict";
// Sorts and filters long tables, opens what is linked or printed, and zooms into power traces.
// Without it all of the page can be read.
(() => {
  const words = JSON.parse(document.body.dataset.words);
  const LONG = 16; // rows of a table that can be sorted and filtered
  const PREFIX = { "µ": 1e-6, "m": 1e-3, "k": 1e3 };

  const make = (tag, properties = {}, ...inside) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...inside);
    return made;
  };

  // The first number of a cell, in its unit without prefix; NaN where there is none.
  const number = (text) => {
    const plain = text.replace(/(?<=\d)[\s\u00a0\u202f](?=\d{3}(?!\d))/g, "").replace(/\u2212/g, "-");
    const found = plain.match(/([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)(?:[^a-zµ]*([µmk])?(?:J|W|Wh|s)\b)?/i);
    return found ? Number(found[1]) * (PREFIX[found[2]] ?? 1) : NaN;
  };

  // A row's head that spans several is written in each of them, so that rows can move alone.
  const flatten = (table) => {
    for (const head of table.querySelectorAll("tbody th[rowspan]")) {
      let row = head.parentElement;
      const many = head.rowSpan;
      head.removeAttribute("rowspan");
      for (let i = 1; i < many; i++) {
        row = row.nextElementSibling;
        row.prepend(head.cloneNode(true));
        row.classList.add("group");
      }
    }
  };

  const compare = (place, figures) => (a, b) => {
    const [x, y] = [a, b].map((row) => row.cells[place]?.textContent.trim() ?? "");
    if (!figures) return x.localeCompare(y, undefined, { numeric: true });
    const [m, n] = [number(x), number(y)];
    return Number.isNaN(m) || Number.isNaN(n) ? Number.isNaN(m) - Number.isNaN(n) : m - n;
  };

  const sort = (table, heads, head, rows) => {
    const next = { none: "ascending", ascending: "descending", descending: "none" };
    const way = next[head.getAttribute("aria-sort") ?? "none"];
    heads.forEach((other) => other.setAttribute("aria-sort", other === head ? way : "none"));
    flatten(table);
    const order = compare(head.cellIndex, head.classList.contains("figure"));
    const sorted = way === "none" ? rows : [...rows].sort(order);
    if (way === "descending") sorted.reverse();
    table.tBodies[0].append(...sorted);
  };

  const filterable = (table, rows) => {
    const shown = make("output");
    const field = make("input", { type: "search", autocomplete: "off" });
    field.addEventListener("input", () => {
      flatten(table);
      const wanted = field.value.trim().toLowerCase();
      let count = 0;
      for (const row of rows) {
        row.hidden = !row.textContent.replaceAll("\u00a0", " ").toLowerCase().includes(wanted);
        count += !row.hidden;
      }
      shown.value = wanted ? words.rows.replace("{shown}", count).replace("{all}", rows.length) : "";
    });
    const label = make("label", {}, `${words.filter} `, field);
    table.closest(".scroll").before(make("div", { className: "tools" }, label, " ", shown));
  };

  for (const table of document.querySelectorAll("section.table table:not(.matrix)")) {
    const rows = [...table.tBodies[0].rows];
    if (rows.length < LONG) continue;
    const heads = [...table.tHead.rows[0].cells].filter((head) => head.textContent.trim());
    for (const head of heads) {
      const button = make("button", { type: "button", className: "sort", title: words.sort });
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => sort(table, heads, head, rows));
    }
    filterable(table, rows);
  }

  // What a link leads to, and all that is printed, is open.
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let fold = target; fold; fold = fold.parentElement?.closest("details")) fold.open = true;
    target?.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  if (location.hash) reveal();
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open], .screen)")];
    closed.forEach((fold) => { fold.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((fold) => { fold.open = false; }));

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const LINES = [["--ink", []], ["--line-2", [6, 3]], ["--line-3", [8, 3, 2, 3]], ["--line-4", [2, 3]]];

  // Bands behind the lines, every second phase darker, each with its name where there is room.
  const shade = (phases) => (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.font = `${11 * devicePixelRatio}px sans-serif`;
    phases.forEach(([name, start, end], i) => {
      const [left, right] = [start, end].map((at) => plot.valToPos(at, "x", true));
      ctx.fillStyle = colour(i % 2 ? "--band-2" : "--band-1");
      ctx.fillRect(left, bbox.top, right - left, bbox.height);
      ctx.fillStyle = colour("--soft");
      const from = Math.max(left, bbox.left) + 4 * devicePixelRatio;
      if (ctx.measureText(name).width < Math.min(right, bbox.left + bbox.width) - from) {
        ctx.fillText(name, from, bbox.top + 13 * devicePixelRatio);
      }
    });
    ctx.restore();
  };

  const draw = (place, trace, caption) => {
    const ink = { stroke: colour("--soft"), grid: { stroke: colour("--rule"), width: 1 } };
    const size = () => ({ width: Math.max(280, place.clientWidth), height: 320 });
    const series = trace.names.map((label, i) => {
      const [name, dash] = LINES[i % LINES.length];
      const value = (_, watts) => (watts == null ? "–" : `${watts} W`);
      return { label, stroke: colour(name), dash, width: 1.5, points: { show: false }, value };
    });
    const plot = new uPlot({
      ...size(),
      scales: { x: { time: false } },
      axes: [{ ...ink, label: words.time }, { ...ink, label: "W" }],
      series: [{ label: words.time, value: (_, at) => (at == null ? "–" : at.toFixed(3)) }, ...series],
      hooks: { drawClear: [shade(trace.phases)] },
    }, uPlot.join(trace.curves), place);
    plot.root.querySelectorAll("canvas").forEach((canvas) => {
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", caption);
    });
    addEventListener("resize", () => place.isConnected && plot.setSize(size()));
    return plot;
  };

  const zoomable = (figure) => {
    const trace = JSON.parse(figure.dataset.trace);
    const picture = figure.querySelector(".scroll");
    const place = make("div", { className: "plot" });
    const toggle = make("button", { type: "button" }, words.zoom);
    const tools = make("div", { className: "tools" }, toggle);
    picture.after(tools);
    let plot = null;
    const more = make("span", { hidden: true });
    const move = (middle, factor) => () => {
      const [first, last] = [plot.data[0][0], plot.data[0].at(-1)];
      const { min, max } = plot.scales.x;
      const width = Math.min((max - min) * factor, last - first);
      const start = Math.min(Math.max(min + (max - min) * middle - width / 2, first), last - width);
      plot.setScale("x", { min: start, max: start + width });
    };
    const actions = { in: [0.5, 0.5], out: [0.5, 2], earlier: [0, 1], later: [1, 1], whole: [0.5, Infinity] };
    for (const [name, [middle, factor]] of Object.entries(actions)) {
      const button = make("button", { type: "button" }, words[name]);
      button.addEventListener("click", move(middle, factor));
      more.append(" ", button);
    }
    more.append(" ", make("span", { className: "key" }, words.hint));
    tools.append(more);
    toggle.addEventListener("click", () => {
      const open = !figure.classList.toggle("zoomed");
      if (plot === null) {
        picture.after(place);
        plot = draw(place, trace, figure.querySelector("img").alt);
      }
      more.hidden = open;
      toggle.textContent = open ? words.zoom : words.picture;
    });
  };
  document.querySelectorAll("figure[data-trace]").forEach(zoomable);
})();
