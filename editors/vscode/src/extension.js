// Starts `privtab lsp` and lets the editor talk to it; everything that is known of policies is known there.
const { workspace, window } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

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
      `privtab: cannot start \`${[command, ...args].join(" ")}\`: ${error.message}. Install privtab with the extras compiler and lsp, ` +
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
  await start();
};

exports.deactivate = async () => {
  const running = client;
  client = undefined;
  await running?.stop().catch(() => undefined);
};
