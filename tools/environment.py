"""The virtual environment `.venv`: made from hash-pinned requirements, by uv if it can be had, else by pip.

What it fetches for itself lies in `.dev/`. A stamp makes an unchanged environment free of charge.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEV = ROOT / ".dev"
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
REQUIREMENTS = ROOT / "requirements"

_BASE = getattr(sys, "_base_executable", None) or sys.executable  # not .venv's own when it calls us


class Failed(Exception):
    """Something outside this program went wrong; the text is all there is to say."""


def python(*groups: str) -> str:
    """The environment's interpreter, with these requirement groups (`dev` by default) installed."""
    for group in groups or ("dev",):
        _ensure(group)
    return str(BIN / "python")


def run(command: list[str], **env: str) -> int:
    """Run in the project's root and end the child when we are ended."""
    child = subprocess.Popen(command, cwd=ROOT, env=variables() | env)
    try:
        code = child.wait()
    except KeyboardInterrupt:  # the child got it as well
        code = child.wait()
    finally:
        _end(child)
    return code if code >= 0 else 128 - code  # ended by a signal, as a shell would say it


def _end(child: subprocess.Popen[bytes], within: float = 10) -> None:
    """Ask as Ctrl-C would, so that it cleans up; then force."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(within)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def variables() -> dict[str, str]:
    """The caller's variables with `.venv` active."""
    path = os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)])
    return dict(os.environ) | {"VIRTUAL_ENV": str(VENV), "PATH": path}


def _ensure(group: str) -> None:
    stamp = VENV / f".stamp-{group}"
    wanted = _fingerprint(group)
    if stamp.exists() and stamp.read_text() == wanted and (BIN / "python").exists():
        return
    print(f"./dev: installing {group} requirements into .venv", file=sys.stderr, flush=True)
    uv = find_uv()
    if group == "dev":
        _make_venv(uv)
    _install(uv, "--require-hashes", "-r", str(REQUIREMENTS / f"{group}.txt"))
    if group == "dev":
        _install(uv, "--no-deps", "--no-build-isolation", "-e", str(ROOT))
    stamp.write_text(wanted)


def _fingerprint(group: str) -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    told = {
        "requirements": (REQUIREMENTS / f"{group}.txt").read_text(),
        "project": [project["project"], project["build-system"], project["tool"]["hatch"]],
        "python": [_BASE, sys.version, platform.machine(), str(ROOT)],
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _make_venv(uv: str | None) -> None:
    """A fresh one unless the one there belongs to this very Python."""
    made_by = VENV / ".made-by"
    mark = f"{_BASE} {sys.version} {ROOT}"
    if made_by.exists() and made_by.read_text() == mark and (BIN / "python").exists():
        return
    shutil.rmtree(VENV, ignore_errors=True)
    if uv is None or _call([uv, "venv", "--quiet", "--python", _BASE, str(VENV)], _uv_variables()):
        shutil.rmtree(VENV, ignore_errors=True)
        if _call([_BASE, "-m", "venv", "--without-pip", str(VENV)]):
            raise Failed("could not make .venv")
    made_by.write_text(mark)


def _install(uv: str | None, *what: str) -> None:
    """With uv; if that is missing or fails, with the base Python's pip."""
    # The target is always named: UV_PYTHON alone would send packages into the base Python.
    target = str(BIN / "python")
    if uv and not _call([uv, "pip", "install", "--quiet", "--python", target, *what], _uv_variables()):
        return
    if uv:
        print("./dev: uv failed, trying pip", file=sys.stderr, flush=True)
    if _call([_BASE, "-m", "pip", "--python", target, "install", "--quiet", *what], _pip_variables()):
        raise Failed(f"could not install {what[-1]} (see above)")


def find_uv() -> str | None:
    """uv from PATH, from `.dev/`, or fetched into `.dev/`; None when it cannot be had."""
    if os.environ.get("MAINSPRING_DEV_NO_UV"):
        return None
    own = DEV / "uv" / "bin" / "uv"
    if found := shutil.which("uv"):
        return found
    if not own.exists():
        flags = ["--quiet", "--require-hashes", "--only-binary=:all:", "-r", str(REQUIREMENTS / "uv.txt")]
        _call([_BASE, "-m", "pip", "install", "--upgrade", "--target", str(DEV / "uv"), *flags], _pip_variables())
    return str(own) if own.exists() else None


def _call(command: list[str], env: dict[str, str] | None = None) -> int:
    try:
        return subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, check=False).returncode
    except OSError as error:
        print(f"./dev: {command[0]}: {error}", file=sys.stderr)
        return 1


def _pip_variables() -> dict[str, str]:
    return dict(os.environ) | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}


def _uv_variables() -> dict[str, str]:
    """uv does not read pip's settings: hand over where packages come from and whom to trust."""
    env = dict(os.environ) | {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}
    env.pop("VIRTUAL_ENV", None)
    env.setdefault("UV_LINK_MODE", "copy" if os.name == "nt" else "hardlink")
    pip = _pip_settings()
    for theirs, ours in (
        ("index-url", "UV_DEFAULT_INDEX"),
        ("extra-index-url", "UV_INDEX"),
        ("cert", "SSL_CERT_FILE"),
        ("trusted-host", "UV_INSECURE_HOST"),
    ):
        if pip.get(theirs):
            env.setdefault(ours, " ".join(pip[theirs].split()))
    if "UV_INDEX" in env:
        # uv stops at the first index that knows a name; pip looks at all. Hashes are pinned, so all is safe.
        env.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    return env


def _pip_settings() -> dict[str, str]:
    """pip's effective settings: variables over files."""
    told = subprocess.run(
        [_BASE, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False, env=_pip_variables()
    )
    settings: dict[str, str] = {}
    for line in sorted(told.stdout.splitlines(), reverse=True):  # "global.x=..." before ":env:.x=...", which wins
        key, _, value = line.partition("=")
        settings[key.rpartition(".")[2].replace("_", "-")] = value.strip("'\"")
    return settings
