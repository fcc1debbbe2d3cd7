"""The app of the command line's tests; each test has a copy of this file as its ``app.py``."""

from __future__ import annotations

import time
from datetime import datetime
from uuid import UUID

from mainspring import Context, Discard, Mainspring, Secret

app = Mainspring(lease="3s", sweep="500ms", poll="100ms", grace="1s", drain="5s", version="7")


@app.task(name="shop.add")
def add(a: int, b: int = 1) -> int:
    return a + b


@app.task(name="shop.fail", retries=0, queue="slow")
def fail(why: str) -> None:
    raise ValueError(why)


@app.task(name="shop.talk")
def talk(ctx: Context, lines: int) -> str:
    for n in range(lines):
        ctx.log(f"line {n}")
        ctx.progress(n + 1, lines, note="talking")
    return "said"


@app.task(name="shop.pay", sensitive=["card"], tags=["money"])
def pay(card: str, amount: int) -> int:
    return amount


@app.task(name="shop.wait")
def wait(ctx: Context, limit: float = 60.0) -> None:
    end = time.monotonic() + limit
    while time.monotonic() < end:
        ctx.check()
        time.sleep(0.02)


@app.task(name="shop.greet")
async def greet(name: str, at: datetime | None = None) -> str:
    return f"hello {name}" + (f" at {at.isoformat()}" if at else "")


@app.task(name="shop.flaky", backoff="1h")
def flaky() -> None:
    raise ConnectionError("not yet")


@app.task(name="shop.drop")
def drop() -> None:
    raise Discard("not wanted")


@app.task(name="shop.lost", queue="slow", retries=0, tags=["x"])
def lost(job: UUID) -> None:
    raise ValueError(f"after {job}")


@app.task(name="shop.late", queue="slow", tags=["x"])
def late() -> None: ...


@app.task(name="shop.first", on_success=lost)
def first() -> None: ...


@app.task(name="shop.second", on_success=late.s().options(delay="1h"))
def second() -> None: ...


@app.task(name="shop.token")
def token() -> dict[str, Secret[str]]:
    return {"token": Secret("hunter2-hunter2")}


@app.task(name="shop.total")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(name="shop.count")
def count(n: int) -> list[int]:
    return [*range(n)]
