"""examples/gallery does what its README says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gallery"


@pytest.mark.row("F2", "F3")
def test_the_gallery_example(tmp_path: Path, store_url: str) -> None:
    home = shutil.copytree(EXAMPLE, tmp_path / "gallery")
    env = dict(os.environ) | {"MAINSPRING_URL": store_url}
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=home, env=env, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    partial, failed, whole, end = done.stdout.splitlines()
    assert partial == "partial.pgm: 299 thumbnails"
    assert failed.startswith("no sheet:")
    assert "013.raw is not a photo" in failed
    assert whole == "all.pgm: 300 thumbnails"
    assert end == "succeeded: 302 jobs; 301 thumbnails were made for it"
    photos = home / "photos"
    assert len((photos / "all.pgm").read_bytes()) == len(b"P5 8 2400 255\n") + 300 * 64
