"""Pictures of the pages of `privtab explore`, at two widths, light and dark: python .ci/screenshots.py FOLDER. Needs Chromium."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
SERVE = [
    "explore",
    "gravitino/1.1.0",
    "-s",
    "policy_src/gravitino/state.yaml",
    "--port",
    "0",
    "--no-open",
    "--format",
    "json",
]
PAGES = {
    "start": "",
    "table": "table",
    "decision": "decision?user=alice&operation=load&entity=table:demo/hive/sales/orders",
    "denial": "decision?user=bob&operation=drop&entity=table:demo/hive/sales/orders",
    "who-can": "who-can?operation=load&entity=table:demo/hive/sales/orders",
    "what-can": "what-can?user=alice",
    "heat": "heat?within=metalake:demo&type=table",
    "what-if": "what-if?about=user:alice&remove=memberships%3Fuser%3Dalice%26group%3Danalysts",
    "compare": "compare?version=gravitino/1.2.0",
    "filter": "filter?user=bob&operation=load&type=table&dialect=postgres",
}
SIZES = {"wide": "1280,720", "narrow": "500,1100"}
"""Narrower ones Chromium has no window for."""
SCHEMES = {"light": [], "dark": ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]}


def main(folder: Path) -> None:
    """Write a picture of each page at each size in each scheme."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("Chromium is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "privtab", *SERVE]
    with (
        subprocess.Popen(command, cwd=HOME, stdout=subprocess.PIPE, text=True) as server,
        tempfile.TemporaryDirectory() as profile,
    ):
        try:
            base = json.loads(server.stdout.readline())["url"]  # type: ignore[union-attr]
            for name, page in PAGES.items():
                for scheme, options in SCHEMES.items():
                    for width, size in SIZES.items():
                        picture = folder / f"explore-{name}-{width}-{scheme}.png"
                        settings = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *options]
                        subprocess.run(
                            [chromium, *settings, f"--user-data-dir={profile}", f"--window-size={size}", f"--screenshot={picture}", f"{base}/{page}"],
                            check=True, capture_output=True,
                        )  # fmt: skip
                        sys.stdout.write(f"{picture}\n")
        finally:
            server.terminate()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
