"""The pages in a browser: by keyboard alone, on a phone, in the light and in the dark."""

from __future__ import annotations

import base64
import json
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import uvicorn
from authzen_server import start
from checkout import ROOT
from explored import HOSTILE, MARKUP, PLAIN, POLICY, shop, tables, url
from logged_world import decided

from privtab.base import Entity, Request
from privtab.command._app import run
from privtab.state import from_tables, validate
from privtab_pages.explore.server import Explorer, application
from privtab_pages.explore.site import PAGES, exported
from privtab_pages.explore.views import heat
from privtab_pages.explore.world import Query, World
from privtab_server.registry import Registry

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "how-to" / "explore.md"
CONTROLS = "a[href], button, input:not([type=hidden]), textarea, select, summary, [tabindex='0']"
REACHABLE = f"""() => [...document.querySelectorAll({CONTROLS!r})]
  .filter((found) => found.checkVisibility()).map((found, n) => (found.dataset.test = `${{n}}`))"""
FOCUSED = """() => {
  const found = document.activeElement, style = getComputedStyle(found), box = found.getBoundingClientRect();
  const isSeen = box.width > 0 && box.right > 0 && box.left >= 0 && box.left < innerWidth && box.bottom > 0 && box.top < innerHeight;
  return [found.dataset.test ?? null, style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2, isSeen, found.outerHTML.slice(0, 200)];
}"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    app = application(Explorer(world=shop(tmp_path_factory.mktemp("shop"))))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(20)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("needs chromium")
    with playwright.sync_playwright() as running:
        found = running.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture
def page(browser: Any, base: str) -> Iterator[Any]:
    with browser.new_context(base_url=base) as context:
        yield context.new_page()


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.long if at % 4 else ())
        for at, path in enumerate({path.partition("?")[0]: path for path in PLAIN}.values())
    ],
)
def test_every_control_is_reached_by_tab_and_shows_its_focus(page: Any, path: str) -> None:
    page.goto(path)
    page.wait_for_load_state("networkidle")
    controls = set(page.evaluate(REACHABLE))
    reached: list[str] = []
    for _ in range(len(controls) + 3):
        page.keyboard.press("Tab")
        number, is_outlined, is_seen, shown = page.evaluate(FOCUSED)
        if number is None or number in reached:
            break
        reached.append(number)
        assert is_outlined, shown
        assert is_seen, shown
    assert set(reached) == controls
    assert reached == sorted(reached, key=int), "in the order in which they are read"


def test_a_page_that_takes_long_says_so(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Event()

    def slow(world: World, asked: Query) -> dict[str, Any]:
        answers.wait(60)
        return heat(world, asked)

    monkeypatch.setitem(PAGES, "heat", PAGES["heat"]._replace(view=slow))

    def said(text: str) -> None:
        if re.fullmatch("Working it out: [1-9]+ s", text):
            answers.set()

    # While a page is awaited, nothing can be asked of the one before: it tells what it shows.
    page.expose_function("said", said)
    page.goto("/table")
    assert page.get_by_role("status").text_content() == ""
    page.evaluate("""() => {
      const sign = document.querySelector(".working");
      new MutationObserver(() => sign.checkVisibility() && said(sign.textContent)).observe(sign, {childList: true});
    }""")
    page.evaluate("() => document.querySelector('nav a[href=heat]').click()")
    page.get_by_role("heading", name="operations").wait_for(timeout=60_000)
    assert answers.is_set()
    assert page.get_by_role("status").text_content() == ""


def test_a_row_is_ticked_away_by_keyboard(page: Any) -> None:
    page.goto(url("what-if", about="user:ann"))
    tick = page.get_by_role("checkbox", name="crew")
    tick.focus()
    page.keyboard.press("Space")
    assert tick.is_checked()
    page.keyboard.press("Enter")  # sends the form, as its button does
    page.wait_for_url("**remove=**")
    assert page.get_by_role("heading", name="The change").is_visible()
    leave_out = page.get_by_role("link", name="leave out")
    leave_out.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(lambda where: "remove=" not in where)


def test_a_decision_is_asked_by_keyboard_with_the_names_that_are_offered(page: Any) -> None:
    page.goto("/")
    page.get_by_label("May this user").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("an")
    page.locator("datalist option[value=ann]").first.wait_for(state="attached")
    page.keyboard.type("n")
    for text in ("read", "item:s/a/x"):
        page.keyboard.press("Tab")
        page.keyboard.type(text)
    page.keyboard.press("Enter")
    page.wait_for_url("**/decision?**")
    assert page.get_by_text("ALLOW").first.is_visible()


def test_the_skip_link_leads_past_the_pages(page: Any) -> None:
    page.goto("/")
    page.keyboard.press("Tab")
    assert page.get_by_text("Skip to the content").is_visible()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


def test_escape_closes_what_opens(page: Any) -> None:
    page.goto(url("decision", user="ann", operation="read", entity="item:s/a/x"))
    summary = page.locator("summary").first
    summary.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('details[open]') !== null")
    page.keyboard.press("Escape")
    assert page.locator("details[open]").count() == 0
    assert summary.evaluate("(found) => found === document.activeElement")


# --- texts that are edited -----------------------------------------------------------------------------------------------

EDITED = url("edit", user="ben", operation="read", entity="item:s/a/z")


def wait_for(page: Any, text: str) -> None:
    page.locator("#answer .verdict, #state-of-it, #offer").get_by_text(text).first.wait_for()


def test_an_edit_changes_the_decision_and_a_finding_leads_to_its_place(page: Any) -> None:
    page.goto(EDITED)
    wait_for(page, "ALLOW")
    policy = page.locator("#policy")
    policy.fill(policy.input_value().replace("READ (item) or owner", "REED (item) or owner"))
    wait_for(page, "no answer until it is gone")
    assert page.locator("#answer").inner_html().strip() == "", "no answer that is old"
    page.locator("#findings .error button").click()
    chosen = "(text) => text.value.slice(text.selectionStart, text.selectionEnd)"
    assert policy.evaluate(chosen) == "REED"
    page.keyboard.type("WRITE")
    wait_for(page, "DENY")
    page.get_by_label("user", exact=True).fill("cleo")
    page.get_by_label("entity", exact=True).fill("item:s/a/y")
    wait_for(page, "ALLOW")
    assert page.locator("#entity-names option").count() > 3
    with page.expect_download() as downloading:
        page.get_by_role("button", name="Download policy.yaml").click()
    assert "WRITE (item) or owner" in Path(downloading.value.path()).read_text(encoding="utf-8")


def test_a_link_carries_the_texts_where_no_server_sees_them_and_asks(browser: Any, base: str) -> None:
    with browser.new_context(base_url=base) as context:
        page, sent = context.new_page(), []
        page.on("request", lambda request: sent.append(request.url))
        page.goto(EDITED)
        wait_for(page, "ALLOW")
        marked = f"# secret-text {MARKUP}"
        page.locator("#policy").fill(f"{POLICY}{marked}")
        page.get_by_role("button", name="Link to this").click()
        page.wait_for_url("**#edit=*")
        link = page.url
    with browser.new_context(base_url=base) as context:
        page = context.new_page()
        page.on("request", lambda request: sent.append(request.url))
        page.goto(link)
        wait_for(page, "written by whoever made it")
        wait_for(page, "ALLOW")
        policy = page.locator("#policy")
        assert "secret-text" not in policy.input_value(), "not opened before somebody says so"
        page.get_by_role("button", name="Open it").click()
        assert policy.input_value() == f"{POLICY}{marked}"
        assert "#edit=" not in page.url
        page.goto("about:blank")
        page.goto(link)
        page.get_by_role("button", name="Leave it").click()
        assert "secret-text" not in policy.input_value()
    assert not [where for where in sent if "edit=" in where.partition("#")[0] or "secret" in where]


@pytest.mark.parametrize(
    "data",
    [
        *(pytest.param(data, id=name) for name, data in (("bomb", "bomb"), ("not", "!"))),
        *(
            pytest.param(data, id=name, marks=pytest.mark.long)
            for name, data in (("long", "x" * 70_000), ("nul", "%00"), ("empty", "e30"))
        ),
    ],
)
def test_a_hostile_link_is_not_opened(page: Any, data: str) -> None:
    if data == "bomb":  # twenty megabytes of zeros
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        content = b"".join((*(packer.compress(bytes(1 << 20)) for _ in range(20)), packer.flush()))
        data = base64.urlsafe_b64encode(content).decode().rstrip("=")
    page.goto(EDITED + "#edit=" + data)
    wait_for(page, "ALLOW")
    assert not page.locator("#offer").is_visible()
    assert "store:" in page.locator("#policy").input_value()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder of `--export`, and where a plain web server has it."""
    made = tmp_path_factory.mktemp("exported")
    for name, content in exported(shop(made), []).items():
        (made / name).write_bytes(content)
    handler = partial(SimpleHTTPRequestHandler, directory=made)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield made, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(20)


def test_a_folder_without_python_says_what_it_cannot_do(browser: Any, folder: tuple[Path, str]) -> None:
    with browser.new_context(base_url=folder[1]) as context:
        page = context.new_page()
        page.goto("/edit.html")
        wait_for(page, "Python did not start")
        assert "grants" in page.locator("#state").input_value()


def test_a_folder_decides_in_the_browser(browser: Any, folder: tuple[Path, str]) -> None:
    """With Pyodide and the solver from where `docs/how-to/explore.md` has them, under the page's own policy."""
    made, base = folder
    commands = re.search(r"^\$ npm pack pyodide.*?(?=```)", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert commands is not None
    script = "\n".join(line[2:] for line in commands[0].splitlines() if line.startswith("$ "))
    script = script.replace("site/", "").replace("pip ", f"{sys.executable} -m pip ")
    ended = subprocess.run(["/bin/sh", "-e", "-c", script], cwd=made, capture_output=True, text=True, check=False)
    if ended.returncode:
        pytest.skip(f"Pyodide cannot be had: {ended.stderr[-200:]}")
    with browser.new_context(base_url=base) as context:
        page, complaints = context.new_page(), []
        page.on("console", lambda message: complaints.append(message.text))
        page.goto("/edit.html")
        page.locator("#state").fill("grants: [{grantee: user:ann, effect: allow, privilege: READ, entity: store:s}]")
        for name, value in (("user", "ann"), ("operation", "read"), ("entity", "item:s/a/x")):
            page.get_by_label(name, exact=True).fill(value)
        page.locator("#answer .verdict.allow").wait_for(timeout=180_000)
        page.locator("#state").fill("grants: [{grantee: user:ann, effect: deny, privilege: READ, entity: store:s}]")
        page.locator("#answer .verdict.deny").wait_for(timeout=60_000)
        page.locator("#policy").fill(POLICY.replace("READ (item) or", "REED (item) or"))
        page.get_by_text("did you mean `READ`?").wait_for(timeout=60_000)
        assert complaints == []


def test_a_phone_scrolls_in_one_direction(browser: Any, base: str) -> None:
    width = 320
    with browser.new_context(base_url=base, viewport={"width": width, "height": 800}) as context:
        page = context.new_page()
        for path in PLAIN:
            page.goto(path)
            page.wait_for_load_state("networkidle")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            chips = page.evaluate("[...document.querySelectorAll('.chip')].map((chip) => chip.clientWidth)")
            assert min(chips, default=99) > 20, f"{path}: a letter a line"


def test_the_page_of_a_policy_fits_a_phone(browser: Any, tmp_path: Path) -> None:
    page_file = tmp_path / "streams.html"  # its rows have long names, and cells with several readings
    assert run(["docs", "streams/teracloud", "-o", str(page_file)]) == 0
    for width in (320, 390):
        with browser.new_context(viewport={"width": width, "height": 800}) as context:
            page = context.new_page()
            page.goto(page_file.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.emulate_media(media="print")
            assert (
                page.evaluate(
                    "[...document.querySelectorAll('.matrix')].map((found) => found.scrollHeight - found.clientHeight).filter((cut) => cut > 1)"
                )
                == []
            ), "paper does not scroll"


def test_the_page_of_a_long_policy_is_folded_and_opens_at_a_row(browser: Any, tmp_path: Path) -> None:
    page_file = tmp_path / "gravitino.html"
    assert run(["docs", "gravitino/1.1.0", "-o", str(page_file)]) == 0
    with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        page = context.new_page()
        page.goto(page_file.as_uri())
        assert page.evaluate("document.documentElement.scrollHeight") <= 8_000
        assert not page.get_by_text("update_partition_statistics", exact=True).is_visible()
        page.goto(f"{page_file.as_uri()}#table.update_partition_statistics")
        page.locator("[id='table.update_partition_statistics']").wait_for()


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder, npm = tmp_path_factory.mktemp("axe"), shutil.which("npm")
    if npm is None:
        pytest.skip("needs npm")
    packed = subprocess.run([npm, "pack", "axe-core@4"], cwd=folder, capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"axe-core cannot be had: {packed.stderr.decode()[-200:]}")
    with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive:
        return archive.extractfile("package/axe.min.js").read().decode()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("scheme", "width", "paths"), [("light", 390, PLAIN), pytest.param("dark", 1280, PLAIN, marks=pytest.mark.long)]
)
def test_axe_finds_no_accessibility_error(
    browser: Any, base: str, axe: str, scheme: str, width: int, paths: Sequence[str]
) -> None:
    how = {"color_scheme": scheme, "bypass_csp": True, "viewport": {"width": width, "height": 800}}
    with browser.new_context(base_url=base, **how) as context:
        page = context.new_page()
        for path in paths:
            page.goto(path)
            page.wait_for_load_state("networkidle")
            assert violations(page, axe) == [], path


def violations(page: Any, axe: str) -> list[list[str]]:
    page.add_script_tag(content=axe)
    found: list[list[str]] = page.evaluate(
        "axe.run().then((found) => found.violations.map((v) => [v.id, v.nodes[0].html, v.nodes[0].failureSummary]))"
    )
    return found


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, opa_binary: Path) -> Iterator[list[str]]:
    """The files of a policy's page, a certification, reports about a log and a registry's pages."""
    folder = tmp_path_factory.mktemp("reports")
    program = shop(folder).program
    state, _ = validate(program, from_tables(tables(), "state.yaml"))
    (folder / "state.json").write_text(json.dumps(tables()), encoding="utf-8")
    policy, rows = str(folder / "shop.yaml"), str(folder / "state.json")
    asked = [
        Request(user=user, action="read", resource=Entity("item", "s/a/x")) for user in ("ann", "ben", *HOSTILE[:2])
    ]
    log, _ = decided(folder / "log", opa_binary, program, state, asked)
    assert run(["docs", policy, "--state", rows, "-o", str(folder / "shop.html")]) == 0
    assert "a⟨U+E000⟩⟨U+10FFFD⟩b" in (folder / "shop.html").read_text(), "a role of the matrix"
    assert run(["certify", "-p", policy, "-s", rows, "-o", str(folder / "certified")]) == 0
    assert run(["unused", str(log), "-p", policy, "-s", rows, "--html", str(folder / "log.html")]) == 0
    old = ["--old-policy", policy, "--old-state", rows, "--format", "html", "-o", str(folder / "replay.html")]
    (folder / "next.yaml").write_text(
        POLICY.replace("READ (item) or owner", "WRITE (store) or owner"), encoding="utf-8"
    )
    assert run(["replay", str(log), "-p", str(folder / "next.yaml"), *old]) == 0
    assert "would be denied" in (folder / "replay.html").read_text()
    registry = Registry.open(str(folder / "registry"))
    stored = registry.put((folder / "log" / "policy.tar.gz").read_bytes())
    registry.release("dev", "shop", policy=stored.id, why="a < b " + "n" * 300)
    server = start([f"registry:{registry.url}"], folder)
    files = (folder / "shop.html", folder / "certified" / "report.html", folder / "log.html", folder / "replay.html")
    yield [*(file.as_uri() for file in files), server.url, f"{server.url}/history/dev/shop"]
    server.stop()


@pytest.mark.parametrize(("scheme", "width"), [("light", 320), pytest.param("dark", 1280, marks=pytest.mark.long)])
def test_axe_finds_no_accessibility_error_in_reports(
    browser: Any, reports: list[str], axe: str, scheme: str, width: int
) -> None:
    how = {"color_scheme": scheme, "bypass_csp": True, "viewport": {"width": width, "height": 800}}
    with browser.new_context(**how) as context:
        page = context.new_page()
        for where in reports:
            page.goto(where)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, where
            assert violations(page, axe) == [], where
