"""The machine in numbers that may be published: no names, no paths."""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

PACKAGES = ("mainspring", "huey", "taskito", "msgspec", "uvloop")


def facts(folder: Path) -> dict[str, Any]:
    """Taken before the first measurement."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.system(),
        "architecture": platform.machine(),
        "load": round(os.getloadavg()[0], 2),
        "fsync_us": round(_fsync_us(folder)),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{name: _version(name) for name in PACKAGES},
    }


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
