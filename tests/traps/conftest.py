"""Programs as users write them, run as users run them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

LIMIT = 100


class Programs:
    """A folder with files, and Python started in it. Without a ``url`` the jobs are in a file beside them."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.folder = folder
        self._store = {} if url is None else {"MAINSPRING_URL": url}

    def write(self, **files: str) -> None:
        """``shop__app="..."`` writes ``shop/app.py``."""
        for name, code in files.items():
            path = self.folder / f"{name.replace('__', '/', 1) if not name.startswith('__') else name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(textwrap.dedent(code))

    def run(self, *arguments: str, code: int = 0, stdin: str = "", quiet: bool = True, cwd: str = "") -> str:
        """What the program printed. It ends with ``code``; if ``quiet`` it has nothing to complain about."""
        program = self.start(*arguments, cwd=cwd)
        try:
            out, errors = program.communicate(textwrap.dedent(stdin), timeout=LIMIT)
        finally:
            self.end(program)
        said = f"exit {program.returncode}\n{out}\n{errors}"
        assert program.returncode == code, said
        assert not quiet or not errors, said
        return out if quiet else out + errors

    def start(self, *arguments: str, cwd: str = "") -> subprocess.Popen[str]:
        """The program on its way, in a session of its own; warnings are errors in it."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("MAINSPRING_", "PYTEST_"))}
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.folder / cwd,
            env={**env, **self._store, "PYTHONWARNINGS": "error", "PYTHONPATH": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def end(self, program: subprocess.Popen[str]) -> None:
        """Nothing of its session is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


@pytest.fixture
def programs(tmp_path: Path, store_name: str, store_url: str) -> Programs:
    return Programs(tmp_path, None if store_name == "sqlite" else store_url)
