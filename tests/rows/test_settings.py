"""C: settings from file, environment, flags and code reach the processes that they are for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.client import blocking
from mainspring.errors import InvalidOption, JobNotFound, PayloadTooLarge, ResultTooLarge
from mainspring.jobs.job import Job
from mainspring.states import State
from tests.rows.project import JSON, LIMIT, Project, lines

QUICK: dict[str, Any] = {"lease": "3s", "sweep": "500ms", "poll": "200ms", "grace": "1s"}


@pytest.fixture
def project(tmp_path: Path, store_url: str) -> Project:
    return Project(tmp_path, store_url)


@pytest.fixture
def made(store_url: str) -> Iterator[Any]:
    """Make apps on the store under test."""
    apps: list[Mainspring] = []

    def make(**given: Any) -> Mainspring:
        apps.append(Mainspring(**{"url": store_url, **QUICK, **given}))
        return apps[-1]

    yield make
    for app in apps:
        app.close()


LEASES = """
    import os
    from mainspring import Mainspring
    app = Mainspring(os.environ["SHOP_STORE"] {more})
    @app.task
    def leases() -> list[float]:
        return [each.lease.total_seconds() for each in app.workers.list()]
"""
ASK = "from shop import leases; print(leases.enqueue().id)"
TELL = "from shop import app; import sys; print(app.jobs.get('{}').result(timeout=60))"


@pytest.mark.row("C1")
@pytest.mark.stores("sqlite")
class TestPlaces:
    def test_a_worker_process_obeys_flag_then_code_then_environment_then_file(self, project: Project) -> None:
        def lease(*flags: str, env: dict[str, str]) -> str:
            job = project.python(ASK, env=env)
            project.work(*flags, env=env)
            return project.python(TELL.format(job), env=env)

        project.write(LEASES.format(more=""))
        project.settings('lease = "11s"\nlog_level = "error"')
        by_environment = {"MAINSPRING_LEASE": "12s"}
        assert lease(env={}) == "[11.0]"
        assert lease(env=by_environment) == "[12.0]"
        project.write(LEASES.format(more=', lease="13s"'))
        assert lease(env=by_environment) == "[13.0]"
        assert lease("--lease", "14s", env=by_environment) == "[14.0]"

    def test_settings_are_read_from_pyproject_too(self, project: Project) -> None:
        project.write(LEASES.format(more=""))
        (project.folder / "pyproject.toml").write_text('[tool.mainspring]\nlease = "1m"\n')
        job = project.python(ASK)
        project.work()
        assert project.python(TELL.format(job)) == "[60.0]"

    @pytest.mark.parametrize(
        ("file", "env", "says"),
        [
            ('leese = "5s"', {}, "mainspring.toml: option 'leese' does not exist; did you mean 'lease'?"),
            ('lease = "soon"', {}, "mainspring.toml: lease: lease='soon': cannot be read as a duration"),
            ("payload_limit = '1M'", {}, "mainspring.toml: payload_limit: payload_limit='1M': unknown unit 'M'"),
            ("[routes]\n'a' = 'b c'", {}, "mainspring.toml: routes: routes['a']='b c': is not a queue name"),
            ("", {"MAINSPRING_LEESE": "5s"}, "'MAINSPRING_LEESE' does not exist; did you mean 'MAINSPRING_LEASE'?"),
            ("", {"MAINSPRING_KEEP": "-1d"}, "MAINSPRING_KEEP: keep='-1d': a duration cannot be negative"),
            ("", {"MAINSPRING_CONFIG": "no.toml"}, "MAINSPRING_CONFIG=no.toml: there is no such file"),
        ],
    )
    def test_a_wrong_setting_stops_the_start_with_place_and_reason(
        self, project: Project, file: str, env: dict[str, str], says: str
    ) -> None:
        """The start of a worker and of a program that enqueues; commands print no traceback."""
        project.write(LEASES.format(more=""))
        project.settings(file)
        worker = project.run("-m", "mainspring", "worker", "shop:app", "--until-empty", env=env)
        assert worker.returncode in (1, 2)
        assert says in worker.stderr
        assert "Traceback" not in worker.stderr
        producer = project.run("-c", ASK, env=env)
        assert producer.returncode == 1
        assert says in producer.stderr

    def test_declaring_an_app_reads_neither_file_nor_environment(self, project: Project) -> None:
        project.write(LEASES.format(more=""))
        project.settings("this is no TOML")
        env = {"MAINSPRING_NONSENSE": "1"}
        assert project.python("import shop; print(shop.leases.name, shop.app)", env=env).startswith("shop.leases")


@pytest.mark.row("C2")
class TestRoles:
    @pytest.mark.stores("sqlite")
    def test_a_worker_in_an_api_process_is_refused_with_the_place_of_the_role(self, project: Project) -> None:
        project.write(LEASES.format(more=""))
        done = project.run("-m", "mainspring", "worker", "shop:app", env={"MAINSPRING_ROLES": "api"})
        assert done.returncode == 1
        assert "MAINSPRING_ROLES: roles=['api']: includes neither 'worker' nor 'scheduler'" in done.stderr

    @pytest.mark.option("app.roles")
    def test_an_app_with_the_api_role_can_enqueue_and_cannot_run_a_worker(self, made: Any) -> None:
        app = made(roles="api")

        @app.task(name="work")
        def work() -> None: ...

        assert work.enqueue().info().state is State.READY
        with pytest.raises(InvalidOption, match="includes neither 'worker' nor 'scheduler'"):
            app.worker()


class TestAppSettings:
    """Each setting of the app itself shows in what the app does."""

    @pytest.mark.option("app.url")
    def test_url_selects_the_store(self, made: Any, store_url: str) -> None:
        app = made()
        job = _done(app)
        assert Mainspring(store_url).jobs.get(job.id).info().state is State.SUCCEEDED

    @pytest.mark.option("app.namespace")
    def test_namespaces_do_not_see_each_other(self, made: Any, make_namespace: Callable[[str], str]) -> None:
        job = _done(made(namespace=make_namespace("one")))
        with pytest.raises(JobNotFound):
            made(namespace=make_namespace("two")).jobs.get(job.id)
        assert made(namespace="one").jobs.get(job.id).id == job.id

    @pytest.mark.option("app.include")
    @pytest.mark.stores("sqlite")
    def test_included_modules_are_imported_by_workers(self, project: Project) -> None:
        project.write("import os\nfrom mainspring import Mainspring\napp = Mainspring(os.environ['SHOP_STORE'])")
        project.write("from shop import app\n@app.task\ndef hi() -> str:\n    return 'hi'", "more.py")
        project.settings('include = ["more"]')
        job = project.python("from shop import app; print(app.call('more.hi').enqueue().id)")
        project.work()
        assert project.python(TELL.format(job)) == "hi"

    @pytest.mark.option("app.version")
    def test_version_is_stored_with_the_job_and_shown_with_the_worker(self, made: Any) -> None:
        app = made(version="2026.7")

        @app.task(name="versions")
        def versions() -> list[str]:
            return [each.version for each in app.workers.list()]

        with app.worker():
            job = versions.enqueue()
            assert job.result(timeout=LIMIT) == ["2026.7"]
        assert job.info().code == "2026.7"

    @pytest.mark.option("app.durability")
    def test_durability_reaches_the_store(self, made: Any, store_name: str) -> None:
        for durability in ("full", "normal"):
            app = made(durability=durability)
            said = blocking.run("durability", _durability(app))
            assert said == ("redis:aof" if store_name == "redis" else f"{store_name}:{durability}"), (
                "Redis decides itself"
            )
            assert app.parts().store.durability == durability, "of its workers too"

    @pytest.mark.option("app.routes")
    @pytest.mark.stores("sqlite")
    def test_routes_choose_the_queue(self, made: Any) -> None:
        app = made(routes={"mail.*": "post"})

        @app.task(name="mail.send")
        def send() -> None: ...

        assert send.enqueue().info().queue == "post"
        assert app.parts().settings.queues == ("default", "post"), "and its workers serve it"

    @pytest.mark.option("app.payload_limit")
    @pytest.mark.stores("sqlite")
    def test_a_payload_over_the_limit_is_refused(self, made: Any) -> None:
        small, large = made(payload_limit="1kB"), made(payload_limit="3MB")
        for app in (small, large):
            app.task(name="take")(_take)
        with pytest.raises(PayloadTooLarge, match="limit is 1,000"):
            small.tasks.find("take").enqueue("x" * 1000)
        with pytest.raises(PayloadTooLarge, match="limit is 1,000"):
            small.call("elsewhere", "x" * 1000)
        small.tasks.find("take").enqueue("x" * 900)
        large.tasks.find("take").enqueue("x" * 2_000_000)

    @pytest.mark.option("app.result_limit")
    def test_a_result_over_the_limit_is_not_kept(self, made: Any) -> None:
        app = made(result_limit="1kB")

        @app.task(name="give")
        def give(size: int) -> str:
            return "x" * size

        with app.worker():
            large, small = give.enqueue(1000), give.enqueue(900)
            assert small.result(timeout=LIMIT) == "x" * 900
            assert large.join(timeout=LIMIT).state is State.SUCCEEDED
            with pytest.raises(ResultTooLarge, match="1,000"):
                large.result(timeout=LIMIT)

    @pytest.mark.row("Q8")
    @pytest.mark.option("app.keep")
    def test_ended_jobs_are_deleted_after_keep(self, made: Any) -> None:
        job = _done(made())
        assert _left(made(keep="1ms"), State.SUCCEEDED, 0) == 0
        with pytest.raises(JobNotFound):
            job.info()

    @pytest.mark.row("Q8")
    @pytest.mark.option("app.keep_count")
    def test_no_more_ended_jobs_than_keep_count_are_kept(self, made: Any) -> None:
        for _ in range(4):
            _done(made())
        assert _left(made(keep_count=2, keep_dead="1ms"), State.SUCCEEDED, 2) == 2

    @pytest.mark.row("Q8")
    @pytest.mark.option("app.keep_dead")
    def test_dead_jobs_are_deleted_after_keep_dead(self, made: Any) -> None:
        _done(made(), fail=True)
        assert _left(made(keep_dead="1ms"), State.DEAD, 0) == 0

    @pytest.mark.row("Q8")
    @pytest.mark.option("app.keep_dead_count")
    def test_no_more_dead_jobs_than_keep_dead_count_are_kept(self, made: Any) -> None:
        for _ in range(3):
            _done(made(), fail=True)
        assert _left(made(keep_dead_count=1, keep="1ms"), State.DEAD, 1) == 1


@pytest.mark.stores("sqlite")
class TestLogSettings:
    CODE = """
        import os, logging
        from mainspring import Mainspring
        app = Mainspring(os.environ["SHOP_STORE"])
        @app.task
        def work() -> None:
            for level in ("debug", "info", "warning"):
                getattr(logging.getLogger("lib"), level)("a %s line", level, extra={"card": "4111-1111"})
    """
    START = "from shop import work; work.enqueue()"

    @pytest.mark.option("app.log_level")
    @pytest.mark.parametrize(("level", "count"), [("debug", 3), ("info", 2), ("warning", 1)])
    def test_log_level_sets_the_level(self, project: Project, level: str, count: int) -> None:
        project.write(self.CODE)
        project.python(self.START)
        done = project.work(env={"MAINSPRING_LOG_LEVEL": level, "MAINSPRING_LOG_FORMAT": "json"})
        assert len([line for line in lines(done.stderr) if line["logger"] == "lib"]) == count

    @pytest.mark.option("cli.worker.log_level")
    def test_the_log_level_flag_overrides_the_setting_of_the_app(self, project: Project) -> None:
        project.write(self.CODE.replace('["SHOP_STORE"]', '["SHOP_STORE"], log_level="error"'))
        project.python(self.START)
        done = project.work("--log-level", "warning", env=JSON)
        assert [line["message"] for line in lines(done.stderr) if line["logger"] == "lib"] == ["a warning line"]

    @pytest.mark.option("app.log_format")
    def test_log_format_sets_the_format(self, project: Project) -> None:
        project.write(self.CODE)
        project.python(self.START)
        assert "lib: [shop.work" in project.work().stderr
        project.python(self.START)
        assert lines(project.work(env=JSON).stderr)

    @pytest.mark.option("app.log_file")
    @pytest.mark.parametrize("place", ["all.log", "stdout"])
    def test_log_file_sets_the_file(self, project: Project, place: str) -> None:
        project.write(self.CODE)
        project.python(self.START)
        project.settings(f'log_file = "{place}"')
        done = project.work(env=JSON)
        text = done.stdout if place == "stdout" else (project.folder / place).read_text()
        assert "a warning line" in {line["message"] for line in lines(text)}
        assert "a warning line" not in done.stderr

    @pytest.mark.option("app.redact")
    def test_redact_adds_names_of_secret_fields(self, project: Project) -> None:
        project.write(self.CODE)
        project.python(self.START)
        assert "4111-1111" in project.work().stderr
        project.python(self.START)
        done = project.work(env={"MAINSPRING_REDACT": "card", **JSON})
        assert "4111-1111" not in done.stderr
        assert '"card":"***"' in done.stderr


@pytest.mark.stores("sqlite")
def test_the_schema_of_the_file_is_printed(project: Project) -> None:
    project.write(LEASES.format(more=""))
    done = project.run("-m", "mainspring", "-A", "shop:app", "config", "--schema")
    assert done.returncode == 0, done.stderr
    assert "lease" in json.loads(done.stdout)["properties"]


async def _durability(app: Mainspring) -> str:
    return await (await app.client.store()).durability()


def _take(text: str) -> None:
    raise NotImplementedError(text)


def _done(app: Mainspring, *, fail: bool = False) -> Job[None]:
    """A job that has ended."""

    @app.task(name="ends", retries=0)
    def ends() -> None:
        if fail:
            raise ValueError("dead")

    with app.worker():
        job = ends.enqueue()
        job.join(timeout=LIMIT)
    return job


def _left(app: Mainspring, state: State, wanted: int) -> int:
    """How many jobs are in a state, once workers have pruned: each does when it starts."""
    deadline = time.monotonic() + LIMIT
    while app.jobs.count()[state] > wanted and time.monotonic() < deadline:
        with app.worker():
            patience = time.monotonic() + 5
            while app.jobs.count()[state] > wanted and time.monotonic() < patience:
                time.sleep(0.05)
    return app.jobs.count()[state]
