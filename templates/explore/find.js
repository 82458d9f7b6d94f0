// Finds rows of a long table by their text; the page works without it.
"use strict";
const folds = [...document.querySelectorAll("details.fold")], opened = folds.map((fold) => fold.open);
if (folds.length) {
  const label = Object.assign(document.createElement("label"), { className: "find screen", textContent: "Find rows " });
  const find = Object.assign(document.createElement("input"), { type: "search", placeholder: "an operation, a privilege, a source" });
  label.append(find);
  folds[0].before(label);
  find.addEventListener("input", () => {
    const text = find.value.trim().toLowerCase();
    folds.forEach((fold, at) => {
      const rows = [...fold.querySelectorAll("tr")].filter((row) => row.querySelector("td"));
      for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(text);
      const found = rows.some((row) => !row.hidden);
      fold.open = text ? found : opened[at];
      fold.hidden = text !== "" && !found;
    });
  });
}
