"""Typical mistakes of the first hour, and the message that each one gets."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mainspring import Mainspring, Rate

FOLDER = tempfile.mkdtemp(prefix="first-hour-")
URL = f"sqlite:///{FOLDER}/jobs.db"
app: Any = Mainspring(URL)  # Any: the mistakes below are what a type checker would find first
Mistake = Callable[[], object]
MISTAKES: list[tuple[str, Mistake]] = []


def mistake(title: str) -> Callable[[Mistake], Mistake]:
    def add(fn: Mistake) -> Mistake:
        MISTAKES.append((title, fn))
        return fn

    return add


@app.task(name="shop.add", retries=0)
def add(a: int, b: int) -> int:
    return a + b


@app.task(name="shop.connect", retries=0)
def connect() -> Any:
    return object()


# ---- habits from Celery ------------------------------------------------------------------------------


@mistake("add.delay(2, 3)")
def _() -> object:
    return add.delay(2, 3)


@mistake("add.apply_async((2, 3))")
def _() -> object:
    return add.apply_async((2, 3))


@mistake("@app.task(bind=True)")
def _() -> object:
    return app.task(bind=True)(sorted_copy)


@mistake("@app.task(max_retries=3)")
def _() -> object:
    return app.task(max_retries=3)(sorted_copy)


@mistake("job.get()")
def _() -> object:
    return add.enqueue(2, 3).get()


@mistake("job.state")
def _() -> object:
    return add.enqueue(2, 3).state


@mistake("from mainspring import Pipeline")
def _() -> object:
    from mainspring import Pipeline  # type: ignore[attr-defined]  # the mistake

    return Pipeline


@mistake("@app.task def work(self, x)")
def _() -> object:
    def work(self, x): ...  # type: ignore[no-untyped-def]  # the mistake

    return app.task(work)


# ---- declaring tasks ---------------------------------------------------------------------------------


def sorted_copy(values: list[int]) -> list[int]:
    return sorted(values)


@mistake("@app.task(retires=3)")
def _() -> object:
    return app.task(retires=3)(sorted_copy)


@mistake('@app.task(timeout="5 minuts")')
def _() -> object:
    return app.task(timeout="5 minuts")(sorted_copy)


@mistake("app.task(lambda n: n)")
def _() -> object:
    return app.task(lambda n: n)


@mistake("two functions with the name shop.add")
def _() -> object:
    return app.task(name="shop.add")(sorted_copy)


@mistake('@app.schedule(cron="0 25 * * *")')
def _() -> object:
    return app.schedule(cron="0 25 * * *")(sorted_copy)


@mistake('@app.task(ack="early", retries=5)')
def _() -> object:
    return app.task(ack="early", retries=5)(sorted_copy)


@mistake('@app.task(limit=Rate("100/m"))')
def _() -> object:
    rate: Any = Rate
    return app.task(limit=rate("100/m"))(sorted_copy)


@mistake('@app.on("failed") def failed()')
def _() -> object:
    def failed() -> None: ...

    return app.on("failed")(failed)


@mistake('@app.on("dead", queue="email")')
def _() -> object:
    return app.on("dead", queue="email")


@mistake("a follow-up def report(job)")
def _() -> object:
    def report(job): ...  # type: ignore[no-untyped-def]  # the mistake

    app.task(name="shop.report")(report)
    return app.task(name="shop.sort", on_success="shop.report")(sorted_copy).enqueue([3, 1])


# ---- enqueueing --------------------------------------------------------------------------------------


@mistake("add.enqueue(2)")
def _() -> object:
    return add.enqueue(2)


@mistake("add.enqueue(2, c=3)")
def _() -> object:
    return add.enqueue(2, c=3)


@mistake('add.enqueue(2, "three")')
def _() -> object:
    return add.enqueue(2, "three")


@mistake("add.enqueue(2, 3, delay=60)")
def _() -> object:
    return add.enqueue(2, 3, delay=60)


@mistake('app.call("shop.load", {(1, 2): 3})')
def _() -> object:
    return app.call("shop.load", {(1, 2): 3})


@mistake('app.call("shop.load", float("nan"))')
def _() -> object:
    return app.call("shop.load", float("nan"))


@mistake('app.call("shop.load", open(...))')
def _() -> object:
    with Path(os.devnull).open() as file:
        return app.call("shop.load", file)


@mistake('app.call("shop.load", "x" * 2_000_000)')
def _() -> object:
    return app.call("shop.load", "x" * 2_000_000)


@mistake("add.enqueue(2, 3) in async code")
def _() -> object:
    async def view() -> object:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            add.enqueue(2, 3)
        return caught[0].message

    return asyncio.run(view())


@mistake("job.result() in async code")
def _() -> object:
    job = add.enqueue(2, 3)

    async def view() -> object:
        return job.result(timeout=1)

    return asyncio.run(view())


# ---- waiting and looking -----------------------------------------------------------------------------


@mistake("no worker runs")
def _() -> object:
    return add.enqueue(2, 3).result(timeout="100ms")


@mistake('add.options(queue="defualt").enqueue(2, 3), then job.why()')
def _() -> object:
    job = add.options(queue="defualt").enqueue(2, 3)
    with app.worker():
        return job.why()


@mistake("a result that cannot be stored")
def _() -> object:
    with app.worker():
        return connect.enqueue().result(timeout="60s")


@mistake("an id that does not exist")
def _() -> object:
    return app.jobs.get("01890a5d-ac96-774b-bcce-b302099a8057").info()


# ---- settings and the command line -------------------------------------------------------------------


@mistake('Mainspring("postgre://db/shop")')
def _() -> object:
    return Mainspring("postgre://db/shop").open()


@mistake('Mainspring("redis://localhost") without pip install "mainspring[redis]"')
def _() -> object:
    hidden = "import sys; sys.modules['hiredis'] = sys.modules['redis'] = None; from mainspring import Mainspring; "
    code = hidden + "app = Mainspring('redis://localhost'); app.call('shop.add', 2, 3).enqueue()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    return done.stderr[done.stderr.rindex("mainspring.errors.") :].removeprefix("mainspring.errors.").strip()


@mistake("Mainspring(namespase=...)")
def _() -> object:
    options: Any = {"namespase": "shop"}
    return Mainspring(**options)


@mistake("MAINSPRING_LEASE=soon")
def _() -> object:
    os.environ["MAINSPRING_LEASE"] = "soon"
    try:
        return Mainspring(URL).open()
    finally:
        del os.environ["MAINSPRING_LEASE"]


@mistake("mainspring wroker")
def _() -> object:
    return command("wroker")


@mistake("mainspring worker with a store in memory")
def _() -> object:
    Path(FOLDER, "memory.py").write_text('from mainspring import Mainspring\napp = Mainspring("sqlite://")\n')
    return command("worker", "memory.py", "--burst")


@mistake("mainspring worker -Q emali")
def _() -> object:
    Path(FOLDER, "mail.py").write_text(
        f"from mainspring import Mainspring\napp = Mainspring({URL!r})\n"
        '@app.task(name="mail.send", queue="email")\ndef send() -> None: ...\n'
    )
    said = command("worker", "mail.py", "-Q", "emali", "--burst")
    return next(line.partition("mainspring.worker: ")[2] for line in said.splitlines() if "'emali'" in line)


@mistake('@app.on("succeeded", task="send") for the task mail.send')
def _() -> object:
    with Path(FOLDER, "mail.py").open("a") as file:
        file.write('@app.on("succeeded", task="send")\ndef sent(event): ...\n')
    said = command("worker", "mail.py", "--burst")
    return next(line.partition("mainspring.worker: ")[2] for line in said.splitlines() if "app.on" in line)


@mistake("add.enqueue(2, 3).result() at the top level of tasks.py")
def _() -> object:
    Path(FOLDER, "tasks.py").write_text(
        f"from mainspring import Mainspring\napp = Mainspring({URL!r})\n"
        '@app.task(name="shop.add")\ndef add(a: int, b: int) -> int:\n    return a + b\n'
        "print(add.enqueue(2, 3).result())\n"
    )
    return command("worker", "tasks.py", "--burst")


def command(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mainspring", *words],
        cwd=FOLDER, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.stderr.strip()


# ---- show --------------------------------------------------------------------------------------------


def message_of(fn: Mistake) -> str:
    try:
        said = fn()
    except Exception as error:  # noqa: BLE001 - every message is shown
        said = f"{type(error).__name__}: {error}"
    text = str(said).replace(FOLDER, "<folder>")
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}(?<!b302099a8057)", "<id>", text)
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    return re.sub(r"Options: (\w+), (\w+), .*", r"Options: \1, \2, ...", text)


def main() -> None:
    logging.disable(logging.ERROR)  # the messages are shown here; a program sees its log lines as well
    for number, (title, fn) in enumerate(MISTAKES, 1):
        print(f"{number}. {title}\n{textwrap.indent(message_of(fn), '     ')}\n")
    app.close()


if __name__ == "__main__":
    main()
