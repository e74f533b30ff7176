"use strict";
const form = document.querySelector("form"), rows = [...document.querySelectorAll("tbody tr")];
const chosen = () => [...form.querySelectorAll("select")].filter(s => s.value);
function show() {
  for (const row of rows) row.hidden = chosen().some(s => row.dataset[s.dataset.filter] !== s.value);
  const left = rows.filter(row => !row.hidden).length;
  document.getElementById("count").textContent = `${left} of ${rows.length} lines`;
}
form.hidden = false;
form.addEventListener("change", show);
show();
