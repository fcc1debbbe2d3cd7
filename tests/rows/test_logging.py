"""G: every line of a job says whose it is, and no line shows a secret."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring, Secret
from tests.rows.project import JSON, LIMIT, Project, lines

FIELDS = ("job_id", "task", "queue", "attempt", "worker", "trace_id")


@pytest.fixture
def project(tmp_path: Path, store_url: str) -> Project:
    return Project(tmp_path, store_url)


LINES = """
    import asyncio, logging, os, threading
    from mainspring import AsyncContext, Context, Mainspring

    app = Mainspring(os.environ["SHOP_STORE"])
    lib = logging.getLogger("some.library")

    def say(place):
        lib.info("from %s", place, extra={"rows": 3})

    @app.task(queue="mail")
    async def on_the_loop(ctx: AsyncContext) -> None:
        say("the task")
        await asyncio.to_thread(say, "to_thread")
        await asyncio.create_task(asyncio.to_thread(say, "a task of its own"))
        ctx.logger.info("from ctx.logger")
        ctx.log("from ctx.log")

    @app.task
    def in_a_thread(ctx: Context) -> None:
        say("the thread")
        thread = threading.Thread(target=ctx.bind(say), args=("a bound thread",))
        thread.start()
        thread.join()
        ctx.logger.info("from ctx.logger")

    @app.task(retries=1, backoff="1ms")
    def fails() -> None:
        try:
            raise ValueError("for the log")
        except ValueError:
            lib.exception("it failed")
        raise RuntimeError("again")
"""
START = "from shop import *; [print(task.enqueue().id) for task in (on_the_loop, in_a_thread, fails)]"


@pytest.mark.row("G1")
class TestFields:
    def test_every_log_line_of_a_job_has_its_fields(self, project: Project) -> None:
        """Also lines of libraries, in the job's task and thread, in ``to_thread``, and in a thread started through
        ``ctx.bind``.
        """
        project.write(LINES)
        loop, thread, fails = project.python(START).split()
        found = lines(project.work(env={"MAINSPRING_LOG_FORMAT": "json"}).stderr)
        said = {job: [line for line in found if line.get("job_id") == job] for job in (loop, thread, fails)}
        assert [line["message"].rpartition("] ")[2] for line in said[loop]] == [
            "from the task", "from to_thread", "from a task of its own", "from ctx.logger", "from ctx.log",
        ]  # fmt: skip
        assert [line["message"].rpartition("] ")[2] for line in said[thread]] == [
            "from the thread", "from a bound thread", "from ctx.logger",
        ]  # fmt: skip
        assert [line["attempt"] for line in said[fails] if line["message"] == "it failed"] == [1, 2]
        for job, tasks in ((loop, ("shop.on_the_loop", "mail")), (thread, ("shop.in_a_thread", "default"))):
            for line in said[job]:
                assert (line["task"], line["queue"], line["attempt"]) == (*tasks, 1)
                assert line["worker"]
                assert line["trace_id"] == job.replace("-", "")
        assert all(line["rows"] == 3 for line in said[loop] if line["logger"] == "some.library")

    @pytest.mark.stores("sqlite")
    def test_an_error_is_a_structured_field(self, project: Project) -> None:
        project.write(LINES)
        project.python(START)
        found = lines(project.work(env=JSON).stderr)
        error = next(line["error"] for line in found if line["message"] == "it failed")
        assert (error["type"], error["message"]) == ("ValueError", "for the log")
        assert "in fails" in error["traceback"]

    @pytest.mark.stores("sqlite")
    def test_handlers_of_the_program_get_the_fields_and_each_line_once(self, project: Project) -> None:
        own = """
            import logging
            logging.basicConfig(level="INFO", format="OWN %(task)s|%(queue)s|%(attempt)s|%(job_id)s|%(message)s")
        """
        project.write(own.replace("\n            ", "\n    ") + LINES)
        loop = project.python(START).split()[0]
        text = project.work().stderr
        assert f"OWN shop.on_the_loop|mail|1|{loop}|from to_thread" in text.splitlines()
        assert text.count("from to_thread") == 1

    def test_log_lines_of_an_embedded_worker_have_the_fields(
        self, app: Mainspring, caplog: pytest.LogCaptureFixture
    ) -> None:
        @app.task(name="says")
        def says() -> None:
            logging.getLogger("lib").info("hello", extra={"queue": "mine"})

        with caplog.at_level(logging.INFO), app.worker():
            job = says.enqueue()
            job.result(timeout=LIMIT)
        [made] = [record for record in caplog.records if record.name == "lib"]
        assert (made.job_id, made.task, made.attempt) == (str(job.id), "says", 1)  # type: ignore[attr-defined]  # fields
        assert made.queue == "mine", "whoever logs goes first"  # type: ignore[attr-defined]  # a field

    @pytest.mark.stores("sqlite")
    def test_a_line_break_in_the_input_forges_no_log_line(self, project: Project) -> None:
        project.write(
            LINES + "\n    @app.task\n    def echo(text: str) -> None:\n        lib.warning('got %s', text)\n"
        )
        project.python(r"from shop import echo; echo.enqueue('x\n00:00:00.000 ERROR forged\x1b[2J\x9b31m')")
        pretty = project.work(env={"MAINSPRING_LOG_FORMAT": "text"}).stderr
        lines = pretty.split("\n")
        [place] = [place for place, line in enumerate(lines) if "forged" in line]
        assert lines[place - 1].endswith("got x")
        assert lines[place] == r"    00:00:00.000 ERROR forged\x1b[2J\x9b31m", "indented: no line of its own"
        assert "\x1b" not in pretty


CANARY = "canary-7f3e-secret"
LEAKY = f"""
    import logging, os
    from mainspring import Context, Mainspring, Secret

    app = Mainspring(os.environ["SHOP_STORE"])

    @app.task(sensitive=["card"], retries=0)
    def leaky(ctx: Context, token: Secret[str], card: str, password: str) -> None:
        value = token.reveal()
        lib = logging.getLogger("lib")
        lib.warning("the token is %s, %r", value, token)
        lib.warning("x", extra={{"password": password, "note": value, "session_cookie": "{CANARY}"}})
        lib.warning("Authorization: Bearer %s", password)
        lib.warning("the variable is %s", os.environ["SHOP_API_KEY"])
        lib.warning("reach redis://user:{CANARY}@host/0")
        ctx.log(f"kept {{value}}", token=value)
        ctx.progress(1, note="fine")
        raise ValueError(f"cannot use {{value}}; card {{card}}; password={{password}}")
"""


@pytest.mark.row("G2")
class TestSecrets:
    @pytest.fixture
    def shown(self, project: Project) -> dict[str, str]:
        """What people get to see of a job that does its worst, by place."""
        env = {"SHOP_API_KEY": f"{CANARY}-env", "MAINSPRING_VERSION": "1"}
        project.write(LEAKY)
        job = project.python(
            f"""
            from mainspring import Secret
            from shop import leaky
            print(leaky.enqueue(Secret("{CANARY}-a"), "{CANARY}-card", "{CANARY}-pw").id)
            """,
            env=env,
        )
        pretty = project.work(env={**env, "MAINSPRING_LOG_FORMAT": "text"})
        project.python(f"from shop import app; app.jobs.get('{job}').retry()", env=env)
        as_json = project.work(env={**env, "MAINSPRING_LOG_FORMAT": "json"})
        told = project.python(
            f"""
            import json
            from shop import app
            job = app.jobs.get("{job}")
            info = job.info()
            print(json.dumps([repr(info), [repr(attempt.error) for attempt in info.attempts], repr(job.logs()),
                              repr(app.dead.list().jobs), repr(app.dead.stats()), repr(app.settings.origins)]))
            """,
            env=env,
        )
        return {"pretty": pretty.stderr, "json": as_json.stderr, "record": told}

    def test_a_canary_is_shown_nowhere(self, shown: dict[str, str]) -> None:
        """Not in logs, errors, job records, job logs, dead letters or settings."""
        leaks = {
            place: text[max(0, text.find(CANARY) - 200) :][:300] for place, text in shown.items() if CANARY in text
        }
        assert not leaks

    def test_other_values_beside_the_canary_are_shown(self, shown: dict[str, str]) -> None:
        """This proves that the canary was hidden, and not that nothing was logged."""
        assert "the token is ***, ***" in shown["pretty"]
        lib = [line["message"] for line in lines(shown["json"]) if line["logger"] == "lib"]
        assert lib == [
            "the token is ***, ***", "x", "Authorization: ***", "the variable is ***", "reach redis://user:***@host/0",
        ]  # fmt: skip
        assert "cannot use ***" in shown["record"]
        assert "kept ***" in shown["record"]

    def test_settings_are_shown_without_passwords(self, project: Project) -> None:
        project.write("from mainspring import Mainspring\napp = Mainspring()")
        env = {"MAINSPRING_URL": f"postgresql://shop:{CANARY}@127.0.0.1:1/shop"}
        done = project.run("-m", "mainspring", "-A", "shop:app", "config", "--json", env=env)
        assert done.returncode == 0, done.stderr
        assert "postgresql://shop:***@127.0.0.1:1/shop" in done.stdout
        assert CANARY not in done.stdout + done.stderr
        assert isinstance(json.loads(done.stdout), dict | list)

    def test_an_error_of_the_store_shows_no_password(self, project: Project) -> None:
        project.write("from mainspring import Mainspring\napp = Mainspring()\n@app.task\ndef work() -> None: ...")
        env = {"MAINSPRING_URL": f"mysql://shop:{CANARY}@127.0.0.1:1/shop"}
        done = project.run("-c", "from shop import work; work.enqueue()", env=env)
        assert done.returncode == 1
        assert "MAINSPRING_URL" in done.stderr
        assert CANARY not in done.stderr


def test_a_secret_arrives_with_its_value(app: Mainspring) -> None:
    @app.task(name="length")
    def length(token: Secret[str]) -> int:
        return len(token.reveal())

    @app.task(name="gives")
    def gives() -> Secret[str]:
        return Secret("result-secret-1")

    with app.worker():
        job: Any = length.enqueue(Secret("twelve chars"))
        assert job.result(timeout=LIMIT) == 12
        assert job.info().args == {"token": "***"}
        assert gives.enqueue().result(timeout=LIMIT) == Secret("result-secret-1")
