// Python in the browser: reads edited texts with the privtab of privtab.zip, without a server.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const fetched = async (name) => {
  const answer = await fetch(name);
  if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
  return answer.arrayBuffer();
};
const started = async () => {
  const [python, privtab, solver] = await Promise.all([loadPyodide(), fetched("privtab.zip"), fetched("pyodide/python_sat.whl")]);
  python.unpackArchive(privtab, "zip", { extractDir: "/lib/privtab" });
  python.unpackArchive(solver, "wheel", { extractDir: "/lib/privtab" });
  python.runPython("import sys; sys.path.insert(0, '/lib/privtab')");
  return python.pyimport("privtab_pages.explore.edited");
};
const reading = started();
onmessage = async ({ data }) => {
  try {
    postMessage((await reading).answer_text(data));
  } catch (error) {
    setTimeout(() => { throw error; }); // ends as an error of this worker
  }
};
