"""mainspring migrate: the plan, the SQL to run by hand, and the rights that users of the store need."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from click.testing import CliRunner

from mainspring.cli import cli


def migrate(*words: str) -> str:
    ran = CliRunner().invoke(cli, ["migrate", *words], prog_name="mainspring", catch_exceptions=False)
    assert ran.exit_code == 0, ran.stderr
    return ran.stdout


@pytest.fixture
def place(postgres_owner_url: str) -> tuple[str, ...]:
    """A PostgreSQL database with a namespace that was not migrated."""
    return ("--url", postgres_owner_url, "--namespace", f"m{uuid4().hex[:12]}")


class TestPlan:
    @pytest.mark.option("cli.migrate.plan")
    def test_a_plan_on_sqlite_creates_no_file(self, tmp_path: Path) -> None:
        file = tmp_path / "new.db"
        url = f"sqlite:///{file}"
        told = migrate("--url", url, "--plan")
        assert told.startswith("schema version 0 -> ")
        assert "would run 1, 2" in told
        assert not file.exists()
        migrate("--url", url)
        assert migrate("--url", url, "--plan").endswith(": nothing to do\n")

    def test_a_plan_on_postgres_changes_nothing(self, place: tuple[str, ...]) -> None:
        for _ in range(2):
            assert migrate(*place, "--plan") == "schema version 0 -> 1: would run 1\n"
        assert json.loads(migrate(*place, "--plan", "--json")) == {"before": 0, "after": 1}
        assert migrate(*place) == "schema version 0 -> 1\n"
        assert migrate(*place, "--plan") == "schema version 1: nothing to do\n"

    def test_a_plan_on_redis_changes_nothing(self, redis_url: str) -> None:
        place = ("--url", redis_url, "--namespace", f"m{uuid4().hex[:12]}")
        for _ in range(2):
            assert migrate(*place, "--plan").startswith("schema version 0 -> ")
        migrate(*place)
        assert migrate(*place, "--plan").endswith(": nothing to do\n")


class TestSql:
    @pytest.mark.option("cli.migrate.sql")
    def test_the_printed_sql_makes_the_same_schema(self, place: tuple[str, ...], postgres_owner_url: str) -> None:
        script = migrate(*place, "--sql")
        with psycopg.connect(postgres_owner_url, autocommit=True) as administrator:
            administrator.execute(script.encode())
        assert migrate(*place) == "schema version 1: nothing to do\n"
        assert "no SQL to run" in migrate(*place, "--sql")

    def test_an_engine_without_sql_says_so(self, tmp_path: Path, redis_url: str) -> None:
        for url in (f"sqlite:///{tmp_path}/new.db", redis_url):
            assert "no SQL to run" in migrate("--url", url, "--sql")
            assert json.loads(migrate("--url", url, "--sql", "--json")) == {"script": ""}


class TestRoles:
    @pytest.mark.option("cli.migrate.roles")
    def test_each_engine_prints_its_own_roles(self, place: tuple[str, ...], tmp_path: Path, redis_url: str) -> None:
        assert "create role mainspring_app" in migrate(*place, "--roles")
        assert place[3] in migrate(*place, "--roles")
        assert migrate("--url", redis_url, "--namespace", "shop", "--roles").startswith("user mainspring on ")
        assert "no roles" in migrate("--url", f"sqlite:///{tmp_path}/new.db", "--roles")

    def test_sql_and_roles_exclude_each_other(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/new.db"
        ran = CliRunner().invoke(cli, ["migrate", "--url", url, "--sql", "--roles"], prog_name="mainspring")
        assert ran.exit_code != 0
        assert "exclude each other" in ran.stderr
