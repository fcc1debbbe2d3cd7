"""The file: its permissions, its file system, and damage."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring.errors import (
    SchemaOutdated,
    StoreCorrupt,
    StoreError,
    StoreMisconfigured,
    StoreReadOnly,
    UnsupportedFileSystem,
)
from mainspring.states import State
from mainspring.stores.sqlite import SqliteStore
from mainspring.stores.sqlite.driver import files
from mainspring.stores.sqlite.driver.schema import VERSION

from .helpers import close, enqueue, job, jobs, run, states

MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:40 / /srv/share rw - nfs4 box:/share rw
31 30 0:41 / /srv/share/local rw - xfs /dev/vdb rw
32 22 0:42 / /srv/with\\040space rw - cifs //box/share rw
33 22 0:43 / /srv/over rw - ext4 /dev/vdc rw
34 22 0:44 / /srv/over rw - fuse.sshfs box: rw
"""


def damage(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as opened:
        opened.seek(at)
        opened.write(data)


def opening(path: Path, kind: type[StoreError]) -> str:
    """The message of the error of ``open``."""
    store = SqliteStore(str(path))
    with pytest.raises(kind) as refused:
        run(store.open())
    with pytest.raises(kind):
        enqueue(store, job())
    run(close(store))
    return str(refused.value)


def made(path: Path, n: int = 300) -> None:
    """A store that was used and closed."""
    store = SqliteStore(str(path))
    enqueue(store, *jobs(n))
    run(close(store))


class TestModes:
    def test_only_the_owner_can_read_new_files(self, path: Path) -> None:
        store = SqliteStore(str(path))
        enqueue(store, job())
        beside = [each for each in path.parent.iterdir() if each.is_file()]
        assert {each.name for each in beside} >= {"jobs.db", "jobs.db-wal", "jobs.db-shm", "jobs.db-reserve"}
        assert {stat.S_IMODE(each.stat().st_mode) for each in beside} == {0o600}
        assert stat.S_IMODE((path.parent / "jobs.db-wake").stat().st_mode) == 0o700
        run(close(store))

    def test_an_existing_file_keeps_its_permissions(self, path: Path) -> None:
        sqlite3.connect(path).execute("create table mine (x)").connection.close()
        path.chmod(0o640)
        made(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640


class TestFileSystems:
    @pytest.mark.parametrize(
        ("folder", "kind"),
        [
            ("/home/shop", "ext4"),
            ("/srv/share", "nfs4"),
            ("/srv/share/jobs", "nfs4"),
            ("/srv/sharepoint", "ext4"),
            ("/srv/share/local/jobs", "xfs"),
            ("/srv/with space/jobs", "cifs"),
            ("/srv/over", "fuse.sshfs"),
        ],
    )
    def test_the_nearest_mount_counts(self, folder: str, kind: str) -> None:
        assert files.file_system(folder, MOUNTS) == kind

    def test_an_unknown_file_system_is_not_refused(self) -> None:
        assert files.file_system("/home/shop", "") == ""

    def test_a_network_file_system_is_refused(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        mounts = f"22 1 0:40 / {path.parent.resolve()} rw - nfs4 box:/share rw"
        monkeypatch.setattr(files, "_mounts", lambda: mounts)
        said = opening(path, UnsupportedFileSystem)
        assert "nfs4" in said
        assert "local disk" in said
        assert not path.exists()


class TestDamagedFiles:
    def test_a_file_that_is_not_a_database_is_refused(self, path: Path) -> None:
        path.write_bytes(b"This is a letter, not a database.\n" * 100)
        assert "not a database" in opening(path, StoreCorrupt)
        assert path.read_bytes().startswith(b"This is a letter")

    def test_a_directory_is_refused(self, path: Path) -> None:
        path.mkdir()
        opening(path, StoreCorrupt)

    def test_a_damaged_page_is_reported(self, path: Path) -> None:
        made(path)
        damage(path, 4096 * 20, b"\xff" * 4096 * 4)
        assert "recover" in opening(path, StoreCorrupt)

    def test_a_truncated_file_is_reported(self, path: Path) -> None:
        made(path)
        os.truncate(path, 4096 * 12)
        opening(path, StoreCorrupt)

    def test_a_missing_directory_is_reported(self, path: Path) -> None:
        assert "mkdir" in opening(path / "deeper" / "jobs.db", StoreMisconfigured)

    def test_damage_is_found_by_the_call_that_reads_it(self, path: Path) -> None:
        """The check at open is limited to 0.1 s: a call that reads a damaged page later raises the same error."""
        made(path)
        with sqlite3.connect(path) as other:
            (page,) = other.execute("select rootpage from sqlite_master where name = 'mainspring_jobs'").fetchone()
            (size,) = other.execute("pragma page_size").fetchone()
        other.close()
        store = SqliteStore(str(path))
        store.database._is_checked = True
        damage(path, size * (page - 1), b"\xff" * size)
        with pytest.raises(StoreCorrupt):
            enqueue(store, job())
        run(close(store))


class TestSchema:
    def test_a_newer_schema_is_refused_and_the_error_names_the_fix(self, path: Path) -> None:
        made(path)
        with sqlite3.connect(path) as other:
            other.execute("update mainspring_meta set version = 99")
        other.close()
        said = opening(path, SchemaOutdated)
        assert "99" in said
        assert "Upgrade" in said

    def test_other_tables_of_the_file_are_unchanged(self, path: Path) -> None:
        with sqlite3.connect(path) as mine:
            mine.execute("pragma user_version = 7")
            mine.execute("pragma application_id = 42")
            mine.execute("create table orders (x)")
        mine.close()
        made(path)
        mine = sqlite3.connect(path)
        assert mine.execute("pragma user_version").fetchone() == (7,)
        assert mine.execute("pragma application_id").fetchone() == (42,)
        names = {name for (name,) in mine.execute("select name from sqlite_master where type = 'table'")}
        assert {name for name in names if not name.startswith("mainspring_")} == {"orders"}
        mine.close()

    def test_namespaces_share_only_the_file(self, path: Path) -> None:
        one, two = SqliteStore(str(path)), SqliteStore(str(path), namespace="billing")
        enqueue(one, *jobs(3))
        enqueue(two, job())
        assert (run(states(one)), run(states(two))) == ({State.READY: 3}, {State.READY: 1})
        run(close(one, two))

    def test_migrations_run_once_with_many_processes(self, path: Path) -> None:
        program = "import sys; from mainspring.stores.sqlite import SqliteStore; import asyncio; "
        program += "asyncio.run(SqliteStore(sys.argv[1]).open())"
        many = [subprocess.Popen([sys.executable, "-c", program, str(path)]) for _ in range(4)]
        assert [each.wait(60) for each in many] == [0] * 4
        store = SqliteStore(str(path))
        assert run(store.migrate()) == (VERSION, VERSION)
        run(close(store))

    def test_the_schema_accepts_exactly_the_states_of_the_transition_table(self, path: Path) -> None:
        made(path, 1)
        other = sqlite3.connect(path)
        with pytest.raises(sqlite3.IntegrityError):
            other.execute("update mainspring_jobs set state = 'succeeded'")
        with pytest.raises(sqlite3.IntegrityError):
            other.execute("update mainspring_jobs set due = 'soon'")
        other.close()


READ_ONLY = """
import asyncio, os, sys
from mainspring.errors import StoreReadOnly
from mainspring.stores.sqlite import SqliteStore
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    asyncio.run(SqliteStore(sys.argv[1]).open())
except StoreReadOnly as refused:
    print("refused", refused)
"""


class TestReadOnly:
    """As a plain user: root may write everywhere."""

    @pytest.fixture
    def open_folder(self) -> Iterator[Path]:
        """A directory that every user may enter. Not ``tmp_path``: each start of pytest closes its parent to others."""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            yield Path(folder)

    @pytest.mark.parametrize("what", ["file", "folder", "new"])
    def test_a_read_only_file_or_directory_is_refused(self, open_folder: Path, what: str) -> None:
        folder = open_folder / "data"
        folder.mkdir()
        path = folder / "jobs.db"
        if what != "new":
            made(path, 1)
            for each in folder.iterdir():
                each.chmod(0o444 if each.is_file() and what == "file" else 0o777)
        folder.chmod(0o777 if what == "file" else 0o555)
        said = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(path)], capture_output=True, text=True, timeout=60, check=False
        )
        folder.chmod(0o755)
        assert said.stdout.startswith("refused"), said.stderr
        assert "permission" in said.stdout

    def test_the_error_of_a_read_only_database_names_the_fix(self) -> None:
        error = sqlite3.OperationalError("attempt to write a readonly database")
        error.sqlite_errorcode = sqlite3.SQLITE_READONLY
        assert isinstance(SqliteStore(":memory:").translate(error), StoreReadOnly)
