// Starts `privtab lsp` and lets the editor talk to it; everything that is known of policies is known there.
const { languages, workspace, window } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

const OURS = /^(?:[ \t]*(?:#[^\n]*)?\r?\n)*(?:privtab|scenarios)[ \t]*:[ \t]*1[ \t]*(?:#[^\n]*)?(?:\r?\n|$)/;
const asked = new Set();

// The editor takes the language from `.yaml` before it looks at the first line. Asked once: who then chooses YAML keeps it.
function recognise(document) {
  const where = document.uri.toString();
  if (document.languageId !== "yaml" || asked.has(where) || !OURS.test(document.getText())) return;
  asked.add(where);
  languages.setTextDocumentLanguage(document, "privtab");
}

let client;

async function start() {
  const [command, ...args] = workspace.getConfiguration("privtab").get("command");
  // A policy may begin with comments, so every YAML file is sent: the server has nothing to say about the others.
  const documentSelector = ["privtab", "yaml"].map((language) => ({ scheme: "file", language }));
  client = new LanguageClient("privtab", "privtab", { command, args }, { documentSelector });
  try {
    await client.start();
  } catch (error) {
    window.showErrorMessage(
      `privtab: cannot start \`${[command, ...args].join(" ")}\`: ${error?.message ?? error}. Install privtab with the extras compiler and lsp, ` +
        "or say in the setting privtab.command where it is.",
    );
  }
}

exports.activate = async (context) => {
  context.subscriptions.push(
    workspace.onDidChangeConfiguration(async (change) => {
      if (change.affectsConfiguration("privtab.command")) {
        await exports.deactivate();
        await start();
      }
    }),
  );
  context.subscriptions.push(workspace.onDidOpenTextDocument(recognise));
  workspace.textDocuments.forEach(recognise);
  await start();
};

exports.deactivate = async () => {
  const running = client;
  client = undefined;
  await running?.stop().catch(() => undefined);
};
