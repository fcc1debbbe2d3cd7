"""A user's project in a folder, with commands run as real processes in an environment that knows nothing of us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LIMIT = 60
JSON = {"MAINSPRING_LOG_FORMAT": "json", "SHOP_FORMAT": "json"}
"""The environment in which a worker logs lines that :func:`lines` can read."""


class Project:
    """``shop.py`` declares the app; ``mainspring.toml`` may hold settings."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url

    def write(self, code: str, name: str = "shop.py") -> None:
        (self.folder / name).write_text(textwrap.dedent(code))

    def settings(self, text: str) -> Path:
        path = self.folder / "mainspring.toml"
        path.write_text(textwrap.dedent(text))
        return path

    def run(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Python with these arguments, in the project's folder."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
        return subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env={**kept, "SHOP_STORE": self.url, **(env or {})},
            capture_output=True, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip

    def python(self, code: str, env: Mapping[str, str] | None = None) -> str:
        """What a program of the user prints."""
        done = self.run("-c", textwrap.dedent(code), env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def work(self, *flags: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Workers under a supervisor until no job is left."""
        done = self.run("-m", "mainspring", "worker", "shop:app", "--until-empty", *flags, env=env)
        assert done.returncode == 0, done.stderr
        return done


def lines(text: str) -> list[dict[str, Any]]:
    """Log lines in JSON."""
    return [json.loads(line) for line in text.splitlines()]
