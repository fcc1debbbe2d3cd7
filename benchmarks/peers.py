"""Where peers live: environments of their own under ``.dev/peers``, apart from the project's, made on first use.

Versions and hashes are in ``benchmarks/requirements``. A peer that cannot be had here is a row that says so.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from benchmarks.frame import Failed

WANTED = Path(__file__).resolve().parent / "requirements"
MADE = WANTED.parent.parent / ".dev" / "peers"
_NEWER = ("python3.14", "python3.13", "python3.12")


@functools.cache
def python(name: str = "python") -> str:
    """The interpreter of an environment: ``python`` for most peers, ``celery``, ``oban`` with a newer Python."""
    base = _newer_python() if name == "oban" else sys.executable
    requirements = WANTED / f"{name}.txt"
    home = MADE / name
    if not _is_made(home, requirements, base):
        shutil.rmtree(home, ignore_errors=True)
        _call([base, "-m", "venv", str(home)])
        # The file names every package. With dependencies pip would ask for `psycopg[pool]` too, which has no line.
        pip = [str(home / "bin" / "pip"), "install", "--quiet", "--no-deps", "--require-hashes"]
        _call([*pip, "-r", str(requirements)])
        _note(home, requirements, base)
    return str(home / "bin" / "python")


def script(program: str, name: str = "python") -> str:
    """A command that a peer brings."""
    return str(Path(python(name)).with_name(program))


def versions(names: Collection[str]) -> dict[str, str]:
    """What is asked for, by name."""
    pins = "".join((WANTED / file).read_text() for file in ("python.txt", "celery.txt", "oban.txt"))
    found = {match[1]: match[2] for match in re.finditer(r"^([\w.-]+)==([\w.]+)", pins, re.MULTILINE)}
    found |= json.loads((WANTED / "node" / "package.json").read_text())["dependencies"]
    return {name: found[name] for name in names}


@functools.cache
def node() -> str:
    """Node, with its packages under ``home_of_node``."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if found is None or npm is None:
        raise Failed("not here: node and npm are needed")
    home, lock = home_of_node(), WANTED / "node" / "package-lock.json"
    if not _is_made(home, lock, found):
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(WANTED / "node", home)
        _call([npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"], cwd=home)
        _note(home, lock, found)
    return found


def home_of_node() -> Path:
    return MADE / "node"


def _newer_python() -> str:
    """From PATH, or beside the other versions that pyenv keeps."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    kept = [path for name in _NEWER for path in sorted(versions.glob(f"*/bin/{name}"))]
    for candidate in [*filter(None, map(shutil.which, _NEWER)), *map(str, kept)]:
        if not subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode:
            return candidate
    raise Failed("not here: Python 3.12 or later is needed")


def _is_made(home: Path, requirements: Path, base: str) -> bool:
    stamp = home / ".stamp"
    return stamp.exists() and stamp.read_text() == _fingerprint(requirements, base)


def _note(home: Path, requirements: Path, base: str) -> None:
    (home / ".stamp").write_text(_fingerprint(requirements, base))


def _fingerprint(requirements: Path, base: str) -> str:
    return hashlib.sha256(requirements.read_bytes() + base.encode()).hexdigest()


def _call(command: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Failed(f"not here: {Path(command[0]).name} failed: {said[-1][:200] if said else done.returncode}")
