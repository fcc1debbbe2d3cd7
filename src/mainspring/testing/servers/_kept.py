"""A private server of one project: its data stay in a folder between runs, its process ends with this process."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from mainspring.testing.servers import _ledger
from mainspring.testing.servers._base import Server
from mainspring.testing.servers._errors import ServerFailed
from mainspring.testing.servers._postgres import Postgres
from mainspring.testing.servers._shared import Engine
from mainspring.testing.servers._valkey import Valkey

_EVERY_SECOND = {"appendonly": "yes", "appendfsync": "everysec"}


@contextlib.contextmanager
def kept(engine: Engine, folder: Path) -> Iterator[Server]:
    """The running server whose data are in ``folder``. One process at a time may use it."""
    _ledger.sweep()  # a server that a kill left behind may still hold the data
    home = folder / engine
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    with (folder / f"{engine}.lock").open("a+") as lock:
        _take(lock, engine, home)
        (home / "server.log").unlink(missing_ok=True)
        with (
            Postgres(durable=True, home=home)
            if engine == "postgres"
            else Valkey(settings=_EVERY_SECOND, home=home) as server
        ):
            _write(lock, server.url)
            yield server
        _write(lock, "")


def _take(lock: TextIO, engine: Engine, home: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        url = lock.read().strip()
        fix = f"use that one: MAINSPRING_URL={url}" if url else "try again in a moment"
        raise ServerFailed(f"the {engine} server of {home} runs already. Fix: {fix}") from None


def _write(lock: TextIO, text: str) -> None:
    lock.truncate(0)
    lock.write(text)
    lock.flush()
