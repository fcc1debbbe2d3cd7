"""``mainspring backup`` and ``restore``: a safe copy of a SQLite store, and a safe way back."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
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
