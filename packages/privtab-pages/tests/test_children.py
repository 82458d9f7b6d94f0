"""Pages are worked out beside each other: in real child processes, and of a real `privtab explore`."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from privtab_pages.explore.children import Children

pytestmark = pytest.mark.skipif(not Children.possible(), reason="processes fork on Linux alone")

# In a process of its own: this one may have threads.
SCRIPT = """
import asyncio, os, sys, time
from privtab_pages.explore.children import Children

def answer(what, number):
    while what == "slow" and not os.path.exists(sys.argv[1]):
        time.sleep(0.05)
    if what == "wrong":
        raise ValueError("an error of a page")
    if what == "killed":
        os.kill(os.getpid(), 9)
    return what, number, os.getpid(), "x" * number

children = Children(answer)

async def main():
    slow = [asyncio.create_task(children.answer("slow", n)) for n in range(3)]
    await asyncio.sleep(0.1)
    found = await asyncio.gather(*(children.answer("fast", n) for n in (1, 2, 3_000_000)))
    assert [(what, number, len(text)) for what, number, _, text in found] == [("fast", n, n) for n in (1, 2, 3_000_000)]
    assert len({pid for *_, pid, _ in found} | {os.getpid()}) == 4
    assert not any(task.done() for task in slow)
    for what in ("wrong", "killed"):
        try:
            await children.answer(what, 1)
        except TimeoutError:
            print(what)
    assert (await children.answer("fast", 7))[1] == 7
    open(sys.argv[1], "w").close()
    assert [number for _, number, *_ in await asyncio.gather(*slow)] == [0, 1, 2]
    children.close()

asyncio.run(main())
"""


def test_a_long_question_holds_up_no_other(tmp_path: Path) -> None:
    line = [sys.executable, "-c", SCRIPT, str(tmp_path / "go")]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["wrong", "killed"]
    assert "an error of a page" in ran.stderr


def test_they_end_with_whoever_asks() -> None:
    code = textwrap.dedent("""
        import os
        from privtab_pages.explore.children import Children
        children = Children(print)
        print(open(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read())
    """)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    status = Path(f"/proc/{int(ran.stdout)}/stat")
    until = time.monotonic() + 30
    while status.exists() and ") Z " not in status.read_text(encoding="ascii"):
        assert time.monotonic() < until, "it goes on"
        time.sleep(0.05)
