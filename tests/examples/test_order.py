"""examples/order does what its README says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "order"


@pytest.mark.row("F1", "F7")
def test_the_order_example(tmp_path: Path, store_url: str) -> None:
    home = shutil.copytree(EXAMPLE, tmp_path / "order")
    env = dict(os.environ) | {"MAINSPRING_URL": store_url}

    def run(*command: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, *command], cwd=home, env=env, capture_output=True, text=True, timeout=110, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    *orders, confirm, pay = run("main.py")
    assert orders == [
        "order 1: succeeded; reserved, paid, confirmed",
        "order 2: failed; reserved, released",
        "order 3: failed; reserved, paid, refunded, released",
    ]
    assert sorted([confirm, pay]) == ["shop.confirm LookupError", "shop.pay shop.Declined"]
    listed = run("-m", "mainspring", "flows", "ls", "-A", "shop.py")
    assert [line.split()[1:4] for line in listed[1:]] == [
        ["order", "3", "failed"], ["order", "2", "failed"], ["order", "1", "succeeded"],
    ]  # fmt: skip
    shown = run("-m", "mainspring", "flows", "show", listed[1].split()[0], "-A", "shop.py")
    tree = [" ".join(line.split()[:-1]) for line in shown[shown.index("") + 2 :]][:6]
    assert tree == [
        "validate succeeded", "reserve succeeded", "pay succeeded", "confirm dead (retries_exhausted)",
        "undo refund succeeded", "undo release succeeded",
    ]  # fmt: skip
