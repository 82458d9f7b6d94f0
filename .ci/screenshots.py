"""Pictures of pages, at two widths, light and dark: python .ci/screenshots.py FOLDER. Needs Chromium.

With docs/images as the folder: the pictures of the documentation, one of each page that it shows.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from playwright.sync_api import sync_playwright

HOME = Path(__file__).resolve().parent.parent
SERVE = [
    "explore",
    "gravitino/1.1.0",
    "-s",
    "policy_src/gravitino/state.yaml",
    "--listen",
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
    "edit": "edit?user=alice&operation=load&entity=table:demo/hive/sales/orders",
}
WIDTHS = {"wide": 1280, "narrow": 390}
IMAGES = HOME / "docs" / "images"
DOCUMENTED = {"explore-decision": 735, "explore-heat": 760, "explore-edit": 900}
"""The pages that the documentation shows, with the height of their pictures, in pixels."""


REPORTS = {
    "docs.html": ["docs", "gravitino/1.1.0", "--state", "policy_src/gravitino/state.yaml", "-o"],
    "certified": ["certify", "-p", "gravitino/1.1.0", "-s", "policy_src/gravitino/state.yaml", "-o"],
}


def reports(folder: Path) -> dict[str, str]:
    """The addresses of pages that are files, which are written into a folder."""
    for name, arguments in REPORTS.items():
        subprocess.run([sys.executable, "-m", "privtab", *arguments, folder / name], cwd=HOME, check=True)
    certified = folder / "certified" / "report.html"
    return {"docs": (folder / "docs.html").as_uri(), "certify": certified.as_uri()}


def main(folder: Path) -> None:
    """Write a picture of each page at each width in each scheme."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("Chromium is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "privtab", *SERVE]
    with (
        TemporaryDirectory() as made,
        subprocess.Popen(command, cwd=HOME, stdout=subprocess.PIPE, text=True) as server,
        sync_playwright() as playwright,
    ):
        try:
            base = json.loads(server.stdout.readline())["url"]  # type: ignore[union-attr]
            pages = {f"explore-{name}": f"{base}/{page}" for name, page in PAGES.items()} | reports(Path(made))
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
            chosen = [(scheme, width, name, 900) for scheme, width, name in product(schemes, WIDTHS, pages)]
            if folder.resolve() == IMAGES:
                chosen = [("light", "wide", name, height) for name, height in DOCUMENTED.items()]
            for scheme, width, name, height in chosen:
                with browser.new_page(
                    color_scheme=scheme, viewport={"width": WIDTHS[width], "height": height}
                ) as opened:
                    opened.goto(pages[name])
                    opened.wait_for_load_state("networkidle")  # the page that edits asks for its answer
                    opened.screenshot(
                        path=folder / f"{name}{'' if folder.resolve() == IMAGES else f'-{width}-{scheme}'}.png"
                    )
        finally:
            server.terminate()
    sys.stdout.write(f"{len(chosen)} pictures in {folder}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
