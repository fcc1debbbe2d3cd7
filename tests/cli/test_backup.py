"""``mainspring backup`` and ``restore``: a safe copy of a SQLite store, and a safe way back."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mainspring import Mainspring
from tests.rows.project import Project

USER = """
import sys
from mainspring import Mainspring
app = Mainspring(sys.argv[1])
app.call("shop.mail").enqueue()
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, f"sqlite:///{tmp_path}/jobs.db")


def run(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    return project.run("-m", "mainspring", *arguments, "--url", project.url)


def count(project: Project) -> int:
    app = Mainspring(project.url)
    found = sum(app.jobs.count().values())
    app.close()
    return found


def enqueue(project: Project, n: int) -> None:
    app = Mainspring(project.url)
    for _ in range(n):
        app.call("shop.mail").enqueue()
    app.close()


@pytest.mark.option("cli.backup.url", "cli.backup.file", "cli.restore.url", "cli.restore.file", "cli.restore.yes")
def test_a_restored_backup_has_the_jobs_of_its_moment(project: Project) -> None:
    enqueue(project, 3)
    done = run(project, "backup", "jobs.backup")
    assert done.returncode == 0, done.stderr
    assert "jobs.db was copied to jobs.backup" in done.stdout
    enqueue(project, 4)
    done = run(project, "restore", "jobs.backup", "--yes")
    assert done.returncode == 0, done.stderr
    assert count(project) == 3
    enqueue(project, 1)
    assert count(project) == 4
    with closing(sqlite3.connect(project.folder / "jobs.db")) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]


def test_a_backup_has_all_namespaces(project: Project) -> None:
    """So backup and restore have no --namespace."""
    enqueue(project, 1)
    other = Mainspring(project.url, namespace="other")
    other.call("shop.mail").enqueue()
    assert run(project, "backup", "jobs.backup").returncode == 0
    other.call("shop.mail").enqueue()
    other.close()
    assert run(project, "restore", "jobs.backup", "--yes").returncode == 0
    with Mainspring(project.url, namespace="other") as restored:
        assert sum(restored.jobs.count().values()) == 1


IMPORTS = """
import tempfile
from mainspring import Mainspring
with tempfile.TemporaryDirectory() as folder, Mainspring(f"sqlite:///{folder}/other.db") as other:
    other.call("shop.mail").enqueue()
"""
OTHER_USER = 12345
"""The owner of the store, if the tests run as root."""


@pytest.fixture
def owned() -> Iterator[Project]:
    """A store of another user, if the tests run as root; else of this user."""
    folder = Path(tempfile.mkdtemp())  # the directories of pytest are closed to other users
    try:
        if os.geteuid() == 0:
            os.chown(folder, OTHER_USER, OTHER_USER)
        yield Project(folder, f"sqlite:///{folder}/jobs.db")
    finally:
        shutil.rmtree(folder)


def use(project: Project) -> subprocess.Popen[str]:
    """A process of the store's owner that has the store open. Its owner may be unable to read the modules of root."""
    found = project.folder.stat()
    become = f"import os\nos.setgid({found.st_gid})\nos.setuid({found.st_uid})\n" if os.geteuid() == 0 else ""
    command = [sys.executable, "-c", IMPORTS + become + USER, project.url]
    user = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=project.folder)
    assert user.stdout is not None
    assert user.stdout.readline() == "open\n"
    return user


def owners(project: Project) -> set[tuple[int, int]]:
    found = [project.folder, *project.folder.glob("jobs.db*"), *project.folder.glob("jobs.db-wake/*")]
    return {(path.stat().st_uid, path.stat().st_gid) for path in found}


def test_restore_keeps_the_owner_and_the_mode_of_the_file(owned: Project, tmp_path: Path) -> None:
    with use(owned) as user:
        user.communicate("")
    store, backup = owned.folder / "jobs.db", str(tmp_path / "jobs.backup")
    assert run(owned, "backup", backup).returncode == 0
    store.chmod(0o640)
    done = run(owned, "restore", backup, "--yes")
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(store.stat().st_mode) == 0o640
    assert len(owners(owned)) == 1
    with use(owned) as user:
        user.communicate("")


def test_restore_gives_a_new_file_to_the_owner_of_its_directory(owned: Project, tmp_path: Path) -> None:
    with use(owned) as user:
        user.communicate("")
    backup = str(tmp_path / "jobs.backup")
    assert run(owned, "backup", backup).returncode == 0
    (owned.folder / "jobs.db").unlink()
    shutil.rmtree(owned.folder / "jobs.db-wake")
    done = run(owned, "restore", backup, "--yes")
    assert done.returncode == 0, done.stderr
    assert len(owners(owned)) == 1
    with use(owned) as user:
        user.communicate("")


def test_root_cannot_restore_while_a_process_of_another_user_uses_the_store(owned: Project, tmp_path: Path) -> None:
    backup = str(tmp_path / "jobs.backup")
    with use(owned) as user:
        assert run(owned, "backup", backup).returncode == 0
        refused = run(owned, "restore", backup, "--yes")
        assert refused.returncode == 2
        assert f"process {user.pid} uses the store" in refused.stderr
        user.communicate("")
    assert len(owners(owned)) == 1


def test_a_backup_is_made_while_processes_use_the_store_and_a_restore_is_refused(project: Project) -> None:
    command = [sys.executable, "-c", USER, project.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == "open\n"
        assert run(project, "backup", "jobs.backup").returncode == 0
        refused = run(project, "restore", "jobs.backup", "--yes")
        assert refused.returncode == 2
        assert f"process {user.pid} uses the store" in refused.stderr
        user.communicate("")
    assert run(project, "restore", "jobs.backup", "--yes").returncode == 0
    assert count(project) == 1


def test_a_killed_process_does_not_keep_a_restore_from_the_store(project: Project) -> None:
    """Its write-ahead log is removed with the file that the log belongs to."""
    enqueue(project, 2)
    assert run(project, "backup", "jobs.backup").returncode == 0
    command = [sys.executable, "-c", USER, project.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == "open\n"
        user.kill()
    assert (project.folder / "jobs.db-wal").stat().st_size > 0
    assert run(project, "restore", "jobs.backup", "--yes").returncode == 0
    assert not (project.folder / "jobs.db-wal").exists()
    assert count(project) == 2


def test_a_restore_makes_a_store_that_does_not_exist(project: Project) -> None:
    enqueue(project, 2)
    assert run(project, "backup", "jobs.backup").returncode == 0
    project.url = f"sqlite:///{project.folder}/other.db"
    assert run(project, "restore", "jobs.backup").returncode == 0
    assert count(project) == 2


@pytest.mark.option("cli.backup.app", "cli.backup.as_json", "cli.restore.app", "cli.restore.as_json")
def test_backup_and_restore_take_an_app_and_answer_in_json(project: Project) -> None:
    (project.folder / "shop.py").write_text(f"from mainspring import Mainspring\napp = Mainspring({project.url!r})\n")
    enqueue(project, 2)
    for command in (("backup", "jobs.backup"), ("restore", "jobs.backup", "--yes")):
        done = project.run("-m", "mainspring", *command, "-A", "shop:app", "--json")
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert answer["file"] == "jobs.backup"
        assert Path(answer["store"]) == project.folder / "jobs.db"
        assert answer["bytes"] == (project.folder / "jobs.backup").stat().st_size
    assert count(project) == 2


def test_a_backup_replaces_no_file(project: Project) -> None:
    enqueue(project, 1)
    (project.folder / "precious").write_text("mine")
    refused = run(project, "backup", "precious")
    assert refused.returncode == 2
    assert "exists already" in refused.stderr
    assert (project.folder / "precious").read_text() == "mine"


@pytest.mark.parametrize("content", [None, b"a letter, not a database" * 100, b""])
def test_a_file_that_is_no_backup_is_refused(project: Project, content: bytes | None) -> None:
    enqueue(project, 1)
    if content is not None:
        (project.folder / "letter").write_bytes(content)
    refused = run(project, "restore", "letter", "--yes")
    assert refused.returncode == 2
    assert "mainspring backup wrote" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert count(project) == 1


@pytest.mark.stores("postgres", "redis")
@pytest.mark.parametrize("command", ["backup", "restore"])
def test_a_server_has_tools_of_its_own(project: Project, store_url: str, store_name: str, command: str) -> None:
    project.url = store_url
    refused = run(project, command, "jobs.backup")
    assert refused.returncode == 2
    assert ("pg_dump" if store_name == "postgres" else "BGSAVE") in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
