"""The machine in numbers that may be published: no names, no paths."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from benchmarks import peers, places
from benchmarks.frame import Engine

PACKAGES = ("mainspring", "msgspec", "psycopg", "redis", "hiredis", "uvloop")


PEERS = ("huey", "celery", "dramatiq", "taskiq", "taskiq-redis", "taskito", "chancy", "oban", "procrastinate", "bullmq")


def facts(folder: Path, engine: Engine) -> dict[str, Any]:
    """Taken before the first measurement."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.system(),
        "architecture": platform.machine(),
        "load": [load()],
        "commit": commit(Path(__file__).parent),
        "fsync_us": round(_fsync_us(folder)),
        "python": platform.python_version(),
        engine: _engine_version(engine, folder),
        **{name: _version(name) for name in PACKAGES},
        **peers.versions(PEERS),
    }


def load() -> float:
    """How many processes wanted to run, over the last minute; the benchmarks are among them."""
    return round(os.getloadavg()[0], 2)


def commit(folder: str | Path) -> str:
    """The commit of a tree, in short; "+" after it for changes that are not committed."""
    git = ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _engine_version(engine: Engine, folder: Path) -> str:
    with places.fresh(engine, folder) as place:
        return place.version()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _fsync_us(folder: Path, times: int = 50) -> float:
    """One page overwritten and made durable: what a commit pays at `full`."""
    sync = getattr(os, "fdatasync", os.fsync)
    file = folder / "fsync"
    with file.open("wb", buffering=0) as out:
        out.write(b"x" * 4096)
        sync(out.fileno())
        began = time.perf_counter()
        for _ in range(times):
            out.seek(0)
            out.write(b"x" * 4096)
            sync(out.fileno())
        took = time.perf_counter() - began
    file.unlink()
    return took / times * 1e6
