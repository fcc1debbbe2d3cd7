"""Found by others: what logs and records show of jobs that fail, and of secrets."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from mainspring import Context, Mainspring, Secret
from tests.rows.project import JSON, LIMIT, Project, lines

pytestmark = pytest.mark.stores("sqlite")


@pytest.fixture
def project(tmp_path: Path, store_url: str) -> Project:
    return Project(tmp_path, store_url)


FAILING = """
    import os
    from mainspring import Mainspring

    app = Mainspring(os.environ["SHOP_STORE"], log_format=os.environ.get("SHOP_FORMAT", "auto"))

    @app.task(retries=1, backoff="1ms", sensitive=["card"])
    def fails(card: str) -> None:
        raise RuntimeError(f"no way with {card}")

    @app.task
    def works() -> None: ...
"""
START = "from shop import *; works.enqueue(); print(fails.enqueue('4111-2222-3333').id)"


@pytest.mark.row("G1")
class TestFailures:
    def test_a_failed_attempt_and_a_dead_job_are_each_logged_in_one_line(self, project: Project) -> None:
        project.write(FAILING)
        job = project.python(START)
        found = [line for line in lines(project.work(env=JSON).stderr) if line["level"] in ("warning", "error")]
        assert [(line["level"], line["job_id"], line["task"], line["attempt"]) for line in found] == [
            ("warning", job, "shop.fails", 1), ("error", job, "shop.fails", 2),
        ]  # fmt: skip
        failed, dead = found
        assert re.fullmatch(r"attempt 1 of 2 failed, retry in \S+: RuntimeError: no way with \*\*\*", failed["message"])
        assert dead["message"] == "the job is dead (retries_exhausted): RuntimeError: no way with ***"
        assert (dead["error"]["type"], "in fails" in dead["error"]["traceback"]) == ("RuntimeError", True)
        assert "4111" not in str(found)

    def test_a_worker_logs_its_start_and_stop_and_no_success(self, project: Project) -> None:
        project.write(FAILING)
        project.python("from shop import works; works.enqueue()")
        started, stopped = lines(project.work("-t", "3", "--async-slots", "2", env=JSON).stderr)
        assert started["message"].endswith(f": store {project.url}, queues default, 2 async and 3 thread slots")
        assert stopped["message"].endswith(" stopped: all jobs finished")

    def test_on_a_terminal_the_traceback_is_printed(self, project: Project) -> None:
        project.write(FAILING)
        project.python(START)
        text = project.work(env={"MAINSPRING_LOG_FORMAT": "text", "SHOP_FORMAT": "text"}).stderr
        assert "\n    RuntimeError: no way with ***" in text
        assert "retry in" in text

    def test_handlers_of_the_program_get_the_traceback_without_secrets(
        self, app: Mainspring, caplog: pytest.LogCaptureFixture
    ) -> None:
        @app.task(name="fails", retries=0)
        def fails(key: Secret[str]) -> None:
            raise ValueError(key.reveal())

        with app.worker():
            job = fails.enqueue(Secret("sec-own-handler-1"))
            job.join(timeout=LIMIT)
        [said] = [each for each in caplog.records if each.levelno == logging.ERROR]
        text = logging.Formatter("%(job_id)s %(message)s").format(said)
        assert text.startswith(f"{job.id} the job is dead")
        assert "Traceback" in text
        assert "sec-own" not in text

    def test_a_job_that_dies_with_its_worker_is_logged(self, project: Project) -> None:
        project.write(FAILING + "\n    @app.task(crashes=1)\n    def crash() -> None:\n        os._exit(9)\n")
        job = project.python("from shop import crash; print(crash.enqueue().id)")
        errors = [
            line
            for line in lines(project.work(env=JSON).stderr)
            if line["level"] == "error" and "dead" in line["message"]
        ]
        assert [line.get("job_id") for line in errors] == [job]


EMBEDDED = """
    import logging
    from shop import app, fails
    with app.worker():
        logging.getLogger("lib").info("before")
        fails.enqueue("4111-2222-3333").join(timeout=60)
    logging.getLogger("lib").warning("after")
    print(logging.getLogger().handlers, logging.getLogger().level, logging.getLogger("mainspring").level)
"""


@pytest.mark.row("G1")
class TestEmbedded:
    def test_an_embedded_worker_prints_log_lines_while_it_runs(self, project: Project) -> None:
        """Afterwards the logging configuration is the same as before."""
        project.write(FAILING)
        (project.folder / "main.py").write_text("")
        done = project.run("-c", EMBEDDED.replace("\n    ", "\n"), env={"SHOP_FORMAT": "json"})
        *shown, after = done.stderr.splitlines()
        assert (after, done.stdout.strip()) == ("after", "[] 30 0")
        found = lines("\n".join(shown))
        assert "before" in [line["message"] for line in found]
        assert [line["task"] for line in found if line["level"] == "error"] == ["shop.fails"]
        assert "4111" not in done.stderr

    def test_the_logging_configuration_of_the_program_is_left_alone(self, project: Project) -> None:
        project.write(FAILING)
        own = "import logging\nlogging.basicConfig(format='OWN %(message)s')\n" + EMBEDDED.replace("\n    ", "\n")
        done = project.run("-c", own, env={"SHOP_FORMAT": "json"})
        assert not [line for line in done.stderr.splitlines() if line.startswith("{")]
        assert "OWN log_format=json has no effect" in done.stderr
        assert "before" not in done.stderr

    def test_a_log_file_is_written_in_any_case(self, project: Project) -> None:
        project.write(FAILING)
        file = project.folder / "lines.log"
        own = "import logging\nlogging.basicConfig()\n" + EMBEDDED.replace("\n    ", "\n")
        project.run("-c", own, env={**JSON, "MAINSPRING_LOG_FILE": str(file)})
        assert "shop.fails" in {line.get("task") for line in lines(file.read_text())}

    def test_the_last_of_several_workers_restores_the_logging_configuration(self, project: Project) -> None:
        project.write(FAILING)
        text = project.python(
            """
            import logging
            from shop import app
            with app.worker():
                first = app.worker()
                first.start()
                first.stop()
                print(len(logging.getLogger().handlers))
            print(len(logging.getLogger().handlers))
            """
        )
        assert text.split() == ["1", "0"]


@pytest.mark.row("G2")
class TestSecrets:
    def test_short_values_are_hidden_in_the_lines_of_their_own_job(
        self, app: Mainspring, caplog: pytest.LogCaptureFixture
    ) -> None:
        """From three characters on, as whole words. Lines of other jobs can show the same word."""

        @app.task(name="pay", sensitive=["cvv"], retries=0)
        def pay(ctx: Context, pin: Secret[str], cvv: int) -> None:
            ctx.log(f"pin {pin.reveal()} of order no12345x")
            raise ValueError(f"bad {pin.reveal()} {cvv}")

        @app.task(name="other")
        def other(ctx: Context) -> None:
            ctx.log("door 12345 is 987")

        with caplog.at_level(logging.INFO), app.worker():
            job = pay.enqueue(Secret("12345"), 987)
            job.join(timeout=LIMIT)
            another = other.enqueue()
            another.join(timeout=LIMIT)
        error = job.info().error
        assert error is not None
        assert (error.message, "12345\n" in error.traceback) == ("bad *** ***", False)
        assert [entry.text for entry in job.logs()] == ["pin *** of order no12345x"]
        assert [entry.text for entry in another.logs()] == ["door 12345 is 987"]
        assert "bad ***" in caplog.text

    def test_progress_is_stored_without_secrets(self, app: Mainspring) -> None:
        @app.task(name="steps", sensitive=["card", "number"])
        def steps(ctx: Context, card: str, key: Secret[str], number: int) -> None:
            value = key.reveal()
            ctx.progress(1, 2, f"note {card}", at=value, deep={"list": [card, 7, True]}, password="x", n=number)

        with app.worker():
            job = steps.enqueue("card-88888", Secret("sec-prog-1"), 41112222)
            job.result(timeout=LIMIT)
        assert job.info().progress == {
            "done": 1, "total": 2, "note": "note ***",
            "meta": {"at": "***", "deep": {"list": ["***", 7, True]}, "password": "***", "n": "***"},
        }  # fmt: skip

    def test_handlers_of_the_program_get_the_lines_of_a_job_without_secrets(
        self, app: Mainspring, caplog: pytest.LogCaptureFixture
    ) -> None:
        @app.task(name="says")
        def says(key: Secret[str]) -> None:
            log = logging.getLogger("lib")
            log.warning("revealed %s", key.reveal())
            log.warning("the same %s", "as ever")
            try:
                raise KeyError(key.reveal())
            except KeyError:
                log.exception("oops")

        with app.worker():
            says.enqueue(Secret("sec-fin-xyz1")).result(timeout=LIMIT)
        plain = logging.Formatter("%(message)s")
        said = [plain.format(each) for each in caplog.records if each.name == "lib"]
        assert (said[0], said[1]) == ("revealed ***", "the same as ever")
        assert said[2].endswith("KeyError: '***'")
        assert "sec-fin" not in str(said)
