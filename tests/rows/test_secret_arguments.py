"""G2: the values of secret arguments are shown nowhere, whatever the task writes them into."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from mainspring import Concurrency, Context, Event, Mainspring
from mainspring.states import State
from tests.rows.crew import until
from tests.rows.project import LIMIT, Project

CANARY = "hunter2-canary"


@pytest.fixture
def project(tmp_path: Path, store_url: str) -> Project:
    return Project(tmp_path, store_url)


LEAKY = """
    import logging, os
    from dataclasses import dataclass
    from mainspring import AsyncContext, Context, Mainspring, Secret

    app = Mainspring(os.environ["SHOP_STORE"])
    lib = logging.getLogger("lib")

    @dataclass
    class Login:
        user: str
        password: str

    @app.on("failed")
    def failed(event):
        print("EVENT", event, flush=True)

    @app.task(retries=1, backoff="1ms")
    def plain(ctx: Context, password: str) -> None:
        lib.warning("trying %s", password)
        ctx.log(f"kept {password}")
        ctx.progress(1, note=f"with {password}", pw=[password])
        raise ValueError(f"bad password {password}") from KeyError(password)

    @app.task(retries=0)
    async def on_the_loop(ctx: AsyncContext, db_token: str) -> None:
        ctx.logger.warning("trying %s", db_token)
        raise ValueError(f"bad token {db_token}")

    @app.task(retries=0)
    def nested(login: Login, headers: dict[str, str]) -> None:
        raise ValueError(f"bad {login.password!r} of {login.user}, {headers['Authorization']}")

    @app.task(retries=0)
    def declared(api: Secret[str]) -> None:
        raise ValueError(f"bad {api.reveal()}")

    @app.task(retries=0, sensitive=["card"])
    def named(card: str) -> None:
        raise ValueError(f"bad {card}")

    @app.bulk_task(size=10, wait="1ms", retries=0)
    def bulk(passwords: list[Login]) -> list[None]:
        raise ValueError(f"bad {[each.password for each in passwords]}")
"""
START = f"""
    from mainspring import Secret
    from shop import *
    print(plain.enqueue("{CANARY}").id)
    print(app.call("shop.plain", "{CANARY}").enqueue().id)
    print(on_the_loop.enqueue(db_token="{CANARY}").id)
    print(nested.enqueue(Login("ann", "{CANARY}"), {{"Authorization": "{CANARY}"}}).id)
    print(declared.enqueue(Secret("{CANARY}")).id)
    print(named.enqueue("{CANARY}").id)
    print(bulk.enqueue(Login("ann", "{CANARY}")).id)
"""
READ = """
    import json
    from shop import app
    found = []
    for job in app.jobs.list().jobs:
        handle = app.jobs.get(job.id)
        info = handle.info()
        found.append([repr(info), [repr(attempt.error) for attempt in info.attempts], repr(handle.logs())])
    print(json.dumps(found))
"""


@pytest.mark.row("G2")
class TestErrorsAndLines:
    @pytest.mark.timeout(1200)  # about twenty commands, each in a process of its own
    @pytest.mark.parametrize("log_format", ["text", "json"])
    def test_no_text_of_a_job_shows_the_value_of_a_secret_argument(self, project: Project, log_format: str) -> None:
        """Not the log lines, the errors, the tracebacks, the causes, the progress, the events or the command line."""
        project.write(LEAKY)
        jobs = project.python(START).split()
        done = project.work(env={"MAINSPRING_LOG_FORMAT": log_format})
        record = project.python(READ)
        shown = {"log": done.stderr, "events": done.stdout, "record": record}
        for job in jobs:
            command = project.run("-m", "mainspring", "-A", "shop:app", "jobs", "show", job)
            assert command.returncode == 0, command.stderr
            shown[f"jobs show {job}"] = command.stdout + command.stderr
            local = project.run("-m", "mainspring", "-A", "shop:app", "jobs", "run", job, "--local")
            shown[f"jobs run {job}"] = local.stdout + local.stderr
        leaks = {
            place: text[max(0, text.find(CANARY) - 300) :][:400] for place, text in shown.items() if CANARY in text
        }
        assert not leaks
        assert "bad password ***" in record
        assert "kept ***" in record
        assert "trying ***" in done.stderr
        assert "bad '***' of ann, ***" in record
        assert "EVENT" in done.stdout
        assert len(json.loads(record)) == len(jobs)


@pytest.mark.row("G2")
class TestShortValues:
    def test_short_values_are_hidden_as_whole_words_of_three_characters_or_more(
        self, app: Mainspring, caplog: pytest.LogCaptureFixture
    ) -> None:
        @app.task(name="login", retries=0)
        def login(ctx: Context, password: str, pwd: str) -> None:
            ctx.log(f"{password} {pwd} in {password}x")
            raise ValueError(f"bad {password} {pwd}")

        with caplog.at_level(logging.INFO), app.worker():
            job = login.enqueue("abc", "xy")
            job.join(timeout=LIMIT)
        error = job.info().error
        assert error is not None
        assert error.message == "bad *** xy"
        assert [entry.text for entry in job.logs()] == ["*** xy in abcx"]
        assert job.info().args == {"password": "***", "pwd": "***"}

    def test_a_guessed_secret_is_hidden_in_its_own_job_only(self, app: Mainspring) -> None:
        """A name that looks secret may be an innocent word. Other jobs show the same value."""

        @app.task(name="translate")
        def translate(ctx: Context, token: str) -> None:
            ctx.log(f"the word {token}")

        @app.task(name="other")
        def other(ctx: Context) -> None:
            ctx.log("the word elephant")

        with app.worker():
            first, second = translate.enqueue("elephant"), other.enqueue()
            first.join(timeout=LIMIT)
            second.join(timeout=LIMIT)
        assert [entry.text for entry in first.logs()] == ["the word ***"]
        assert [entry.text for entry in second.logs()] == ["the word elephant"]


@pytest.mark.row("G2")
class TestLongText:
    def test_a_cut_shows_no_part_of_a_value(self, app: Mainspring) -> None:
        """Long messages are cut. A value that lies across the cut is hidden before."""

        @app.task(name="long", retries=0)
        def long(password: str) -> None:
            raise ValueError("x" * 3_950 + password * 20)

        with app.worker():
            job = long.enqueue(CANARY)
            job.join(timeout=LIMIT)
        error = job.info().error
        assert error is not None
        assert CANARY[:5] not in error.message + error.traceback

    def test_each_line_of_a_value_with_several_lines_is_hidden(self, app: Mainspring) -> None:
        """An exception group indents each line of a message."""
        key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END KEY-----"

        @app.task(name="signs", retries=0)
        def signs(private_key: str) -> None:
            raise ExceptionGroup("two", [ValueError(f"bad {private_key}"), KeyError(private_key)])

        with app.worker():
            job = signs.enqueue(key)
            job.join(timeout=LIMIT)
        error: Any = job.info().error
        assert "MIIEvQ" not in repr(error)
        assert "kqhkiG" not in repr(error)


def test_the_event_of_a_failed_attempt_shows_no_secret(app: Mainspring) -> None:
    seen: list[Event] = []
    app.on("failed")(seen.append)

    @app.task(name="login", retries=0)
    def login(password: str) -> None:
        raise ValueError(f"bad password {password}")

    with app.worker():
        login.enqueue(CANARY).join(timeout=LIMIT)
    assert CANARY not in repr(seen)
    assert [event.error.message for event in seen if event.error] == ["bad password ***"]


def test_a_refused_argument_is_not_shown_if_its_name_looks_secret(app: Mainspring) -> None:
    @app.task(name="login")
    def login(password: Any) -> None: ...

    with pytest.raises(Exception, match="password") as refused:
        login.enqueue(password={CANARY})
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize("declared", [False, True])
def test_why_hides_the_key_of_a_limit_by_a_secret_argument(app: Mainspring, declared: bool) -> None:
    go_on = threading.Event()

    @app.task(name="calls", limit=Concurrency(1, by="card" if declared else "api_key"), sensitive=["card"])
    def calls(api_key: str, card: str) -> None:
        go_on.wait(LIMIT)

    with app.worker():
        first = calls.enqueue(CANARY, CANARY)
        until(lambda: first.info().state is State.RUNNING, "the first runs")
        second = calls.enqueue(CANARY, CANARY)
        why = second.why()
        go_on.set()
        second.join(timeout=LIMIT)
    assert CANARY not in repr(why) + str(why)
    assert "=***" in str(why)
