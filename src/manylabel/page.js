"use strict";
// Sort a table by the column whose head was pressed. Heads are buttons, so Tab, Enter and Space work by themselves.
const letters = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

function compare(a, b) {
  const [x, y] = [a, b].map((cell) => parseFloat(cell.dataset.value ?? cell.textContent)); // text such as "+1.2 to +3.4", too
  return x - y || letters.compare(a.textContent, b.textContent);
}

function sortBy(head) {
  const table = head.closest("table");
  const column = head.cellIndex;
  // Numbers start with the largest, text with A; pressing again turns it round.
  const first = head.classList.contains("number") ? "descending" : "ascending";
  const second = first === "ascending" ? "descending" : "ascending";
  const order = head.getAttribute("aria-sort") === first ? second : first;
  const sign = order === "ascending" ? 1 : -1;
  const isEmpty = (row) => row.cells[column].textContent === "";
  const rows = [...table.tBodies[0].rows].sort(
    (a, b) => isEmpty(a) - isEmpty(b) || sign * compare(a.cells[column], b.cells[column]),
  );
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
  table.tBodies[0].append(...rows);
}

for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => sortBy(button.closest("th")));
}

// Cells of a table that is too wide for a phone are shown below each other, each with the head of its column.
const widths = new ResizeObserver((changes) => {
  for (const { target: frame } of changes) {
    if (frame.lastWidth === frame.clientWidth) continue;
    frame.lastWidth = frame.clientWidth;
    frame.classList.remove("cards");
    frame.classList.toggle("cards", frame.scrollWidth > frame.clientWidth);
  }
});

for (const frame of document.querySelectorAll(".frame")) {
  const heads = [...frame.querySelectorAll("th")].map((head) => head.textContent);
  for (const row of frame.querySelector("tbody").rows) {
    [...row.cells].forEach((cell, column) => {
      cell.dataset.head = heads[column];
      cell.classList.toggle("long", cell.textContent.length > 24);
    });
  }
  widths.observe(frame);
}

// Paper cannot unfold a section.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
