// Names as they are typed, how long an answer takes, and Escape closes what is open: the pages work without it.
"use strict";
for (const input of document.querySelectorAll("input[data-names]")) {
  const list = document.createElement("datalist");
  list.id = `${input.id}-names`;
  input.after(list);
  input.setAttribute("list", list.id);
  let waiting = 0;
  const ask = async () => {
    const query = new URLSearchParams({ kind: input.dataset.names, text: input.value });
    const answer = await fetch(`names?${query}`);
    if (!answer.ok) return;
    list.replaceChildren(...(await answer.json()).map((name) => Object.assign(document.createElement("option"), { value: name })));
  };
  input.addEventListener("focus", ask, { once: true });
  input.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(ask, 150); });
}
const working = Object.assign(document.createElement("p"), { className: "working", role: "status" });
document.body.append(working);
let seconds = 0;
const rest = () => { clearInterval(seconds); working.textContent = ""; };
addEventListener("beforeunload", () => {
  const begun = Date.now();
  rest();
  seconds = setInterval(() => {
    const passed = Math.floor((Date.now() - begun) / 1000);
    working.textContent = `Working it out${passed ? `: ${passed} s` : ""}`;
  }, 400);
});
addEventListener("pageshow", rest);
addEventListener("keydown", (event) => {
  if (event.key === "Escape") rest(); // which also ends the wait for a page
  const open = event.key === "Escape" && document.activeElement.closest("details[open]");
  if (!open) return;
  open.open = false;
  open.querySelector("summary").focus();
});
