"""Every ```python block of README.md and docs/ runs as a program of its own. A block that cannot run follows a
comment that says why: `<!-- no-run: reason -->`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?P<before>[^\n]*)\n+```python\n(?P<code>.*?)\n```", re.DOTALL)
NO_RUN = re.compile(r"<!-- no-run: \S.*-->")


def blocks() -> Iterator[object]:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = "\n" + page.read_text()
        for match in BLOCK.finditer(text):
            if not NO_RUN.fullmatch(match["before"].strip()):
                line = text.count("\n", 0, match.start("code"))
                yield pytest.param(match["code"], id=f"{page.relative_to(ROOT)}:{line}")


@pytest.mark.parametrize("code", list(blocks()))
def test_every_code_block_runs(code: str, tmp_path: Path) -> None:
    """A reader can paste it."""
    program = tmp_path / "example.py"
    program.write_text(code)
    env = dict(os.environ) | {"MAINSPRING_URL": f"sqlite:///{tmp_path / 'example.db'}"}
    done = subprocess.run(
        [sys.executable, program.name], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_fence_names_its_language() -> None:
    """Otherwise a block of Python would not be run."""
    fence = re.compile(r"^```(\S*)", re.MULTILINE)
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        opening = fence.findall(page.read_text())[::2]
        assert all(opening), f"{page.relative_to(ROOT)} has a code fence without a language"
