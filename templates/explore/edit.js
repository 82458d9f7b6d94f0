// Edited texts: the server, or Python in this browser, finds what is wrong with them and decides. Nothing is stored.
"use strict";
const form = document.querySelector("#edit"), most = Number(form.dataset.most), longestLink = 65536;
const texts = { policy: form.elements.policy, state: form.elements.state };
const question = ["user", "operation", "entity"].map((name) => form.elements[name]);
const told = document.querySelector("#state-of-it"), offer = document.querySelector("#offer");
const made = (tag, values, ...children) => {
  const element = Object.assign(document.createElement(tag), values);
  element.append(...children);
  return element;
};
const tell = (text) => { told.textContent = text; };

// --- who reads the texts ---
const readers = {
  async server(asked) {
    const answer = await fetch("edit", { method: "POST", headers: { "Content-Type": "application/json" }, body: asked });
    const text = await answer.text();
    return answer.ok ? JSON.parse(text) : { problem: text };
  },
  worker: (asked) => new Promise((resolve) => {
    const begins = !readers.running;
    readers.running ??= new Worker("edit-worker.js", { type: "module" });
    if (begins) tell("Python is starting, once");
    const stop = (problem) => {
      readers.running.terminate();
      readers.running = undefined;
      resolve({ problem });
    };
    const timer = setTimeout(() => stop("this takes too long"), begins ? 180000 : 30000);
    readers.running.onmessage = ({ data }) => { clearTimeout(timer); resolve(JSON.parse(data)); };
    readers.running.onerror = () => {
      clearTimeout(timer);
      stop("Python did not start. This page needs the folder pyodide beside it, and a web server; its documentation says how. The other pages do without.");
    };
    readers.running.postMessage(asked);
  }),
};
let isBusy = false, isStale = false, waiting = 0;
const check = async () => {
  isStale = isBusy;
  if (isBusy) return;
  isBusy = true;
  tell("checking …");
  const size = texts.policy.value.length + texts.state.value.length;
  const pairs = question.map((field) => [field.name, field.value.trim()]);
  const asked = JSON.stringify({ policy: texts.policy.value, state: texts.state.value, question: pairs });
  let found = { problem: `the texts have ${size.toLocaleString("en")} characters, and ${most.toLocaleString("en")} are the most` };
  if (size <= most) {
    try {
      found = await readers[form.dataset.reader](asked);
    } catch (error) {
      found = { problem: `not read: ${error.message}` };
    }
  }
  isBusy = false;
  if (isStale) check();
  else show(found);
};
const soon = () => { clearTimeout(waiting); waiting = setTimeout(check, 300); };

// --- what they say ---
const offset = (text, line, column) => {
  const lines = text.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  return before + [...(lines[line - 1] ?? "")].slice(0, column - 1).join("").length;
};
const select = ({ where, place: [line, column, endLine, endColumn] }) => {
  const text = texts[where];
  text.focus();
  text.setSelectionRange(offset(text.value, line, column), offset(text.value, endLine, endColumn));
  text.scrollTop = Math.max(0, line - 4) * parseFloat(getComputedStyle(text).lineHeight);
};
const item = (finding) => {
  const place = made("button", { type: "button", className: "plain", textContent: `${finding.where} ${finding.place[0]}:${finding.place[1]}` });
  place.addEventListener("click", () => select(finding));
  return made("li", { className: finding.severity }, place, ` ${finding.text}`, finding.help ? made("small", { textContent: ` ${finding.help}` }) : "");
};
const show = ({ problem = "", findings = [], errors = 0, left = 0, answer = "", names = {} }) => {
  document.querySelector("#findings").replaceChildren(...findings.map(item), ...(left ? [made("li", { textContent: `and ${left} more` })] : []));
  const list = document.querySelector("#found");
  list.hidden = findings.length === 0;
  list.open = errors > 0;
  document.querySelector("#answer").innerHTML = answer; // HTML that the templates made of the texts, escaped; no script runs in it
  const errorText = errors === 1 ? "1 error: no answer until it is gone" : `${errors} errors: no answer until they are gone`;
  const number = findings.length + left;
  const fine = number ? `no errors; ${number} finding${number > 1 ? "s" : ""} to look at` : "no findings";
  const without = answer || errors ? "" : "; ask below the texts who may do what";
  tell(problem ? `Not answered: ${problem}` : errors ? errorText : fine + without);
  told.className = problem || errors ? "bad" : "dim";
  for (const [name, known] of Object.entries(names)) {
    const list = document.getElementById(`${name}-names`) ?? made("datalist", { id: `${name}-names` });
    list.replaceChildren(...known.map((value) => made("option", { value })));
    form.elements[name].after(list);
    form.elements[name].setAttribute("list", list.id);
  }
};

// --- links carry the texts behind the #, which no browser sends; files go in and out ---
const packed = async (value) => {
  const stream = new Blob([JSON.stringify(value)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
};
const unpacked = async (text) => {
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const parts = [];
  let size = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    size += part.value.length;
    if (size > 4 * most) throw new Error("it carries too much");
    parts.push(part.value);
  }
  const found = JSON.parse(await new Blob(parts).text());
  const values = [found.policy, found.state, ...found.question];
  if (values.length !== 5 || values.some((value) => typeof value !== "string")) throw new Error("it carries something else");
  return found;
};
let isChanged = false, offered;
const opened = async () => {
  offered = undefined;
  offer.hidden = true;
  if (!location.hash.startsWith("#edit=")) return;
  try {
    if (location.hash.length > longestLink) throw new Error("it is too long");
    offered = await unpacked(location.hash.slice(6));
    offer.firstElementChild.textContent = `This link carries a policy of ${offered.policy.length.toLocaleString("en")} characters and a state of ${offered.state.length.toLocaleString("en")}, written by whoever made it. They would take the place of the texts below.`;
    offer.hidden = false;
  } catch (error) {
    tell(`The link was not opened: ${error.message}`);
  }
};
const leave = () => {
  offer.hidden = true;
  history.replaceState(null, "", location.pathname + location.search);
};
document.querySelector("#open-link").addEventListener("click", () => {
  texts.policy.value = offered.policy;
  texts.state.value = offered.state;
  question.forEach((field, number) => { field.value = offered.question[number]; });
  leave();
  check();
});
document.querySelector("#leave-link").addEventListener("click", leave);
document.querySelector("#link").addEventListener("click", async () => {
  const hash = `#edit=${await packed({ policy: texts.policy.value, state: texts.state.value, question: question.map((field) => field.value) })}`;
  if (hash.length > longestLink) return tell(`a link would have ${hash.length.toLocaleString("en")} characters, and ${longestLink.toLocaleString("en")} are the most: download the texts`);
  history.replaceState(null, "", hash);
  const isCopied = await (navigator.clipboard?.writeText(location.href) ?? Promise.reject()).then(() => true, () => false);
  tell(`the address of this page now carries the texts${isCopied ? ", and is copied" : ""}; whoever has it can read them`);
});
for (const button of form.querySelectorAll("[data-save]")) {
  button.addEventListener("click", () => {
    const href = URL.createObjectURL(new Blob([texts[button.dataset.save].value], { type: "application/yaml" }));
    made("a", { href, download: `${button.dataset.save}.yaml` }).click();
    setTimeout(() => URL.revokeObjectURL(href), 10000);
    isChanged = false;
  });
}
for (const input of form.querySelectorAll("[data-open]")) {
  input.addEventListener("change", async () => {
    const [file] = input.files;
    if (!file) return;
    if (file.size > most) return tell(`${file.name} has ${file.size.toLocaleString("en")} bytes, and ${most.toLocaleString("en")} are the most`);
    texts[input.dataset.open].value = await file.text();
    check();
  });
}
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", (event) => { isChanged ||= event.target.tagName === "TEXTAREA"; soon(); });
addEventListener("beforeunload", (event) => { if (isChanged) event.preventDefault(); });
addEventListener("hashchange", opened);
check();
opened();
