"use strict";
// Sorts and filters long tables, and opens what is linked.
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

  // What a link leads to is open; the style opens all for print.
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let fold = target; fold; fold = fold.parentElement?.closest("details")) fold.open = true;
    target?.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  if (location.hash) reveal();
})();
