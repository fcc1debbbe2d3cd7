"""Programs that both type checkers must accept. Never run: only checked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import assert_type

from mainspring import AsyncContext, AsyncTask, Backoff, Call, Context, Job, JobInfo, Mainspring, Task

app = Mainspring("sqlite:///typing.db", include=["shop.tasks"], version="7", durability="normal", lease="5s")


@app.task
def add(a: int, b: int = 1) -> int:
    return a + b


@app.task(queue="email", retries=3, timeout="30s", priority="high", retry_on=(ConnectionError, TimeoutError))
async def send(to: str, *, subject: str) -> str:
    return to + subject


@app.task
def with_context(ctx: Context, name: str) -> str:
    ctx.progress(1, 2, "half")
    return f"{name} {ctx.attempt} {ctx.token} {ctx.deadline}"


@app.task(backoff=Backoff.fixed("5s"), soft_timeout=1.5, timeout=timedelta(minutes=1), ack="early", fence="strict")
async def with_async_context(ctx: AsyncContext, n: int) -> list[int]:
    ctx.check()
    return [n]


assert_type(add(1, 2), int)
assert_type(add.enqueue(1), Job[int])
assert_type(add.enqueue(1, b=2).result(timeout=5), int)
assert_type(add.s(1), Call[int])
assert_type(add.s(1).options(delay="5m").enqueue(), Job[int])
assert_type(add.options(priority=10, queue="slow").enqueue(1), Job[int])
assert_type(add.job("0190c0de-0000-7000-8000-000000000000"), Job[int])
assert_type(add.enqueue_many([add.s(1), add.s(2)]), list[Job[int]])
assert_type(app.enqueue_many([add.s(1)]), list[Job[int]])
assert_type(with_context("x"), str)
assert_type(with_context.enqueue("x"), Job[str])
add.options(run_at=datetime(2030, 1, 1, tzinfo=UTC), expires=60, timeout=None).enqueue(3)


async def in_async_code() -> None:
    assert_type(await send("a", subject="b"), str)
    assert_type(await send.aenqueue("a", subject="b"), Job[str])
    job = await with_async_context.aenqueue(3)
    assert_type(job, Job[list[int]])
    assert_type(await job.aresult(), list[int])
    assert_type(await job.ainfo(), JobInfo)
    assert_type(await job.acancel("not needed"), bool)
    async with app.worker(thread_slots=2), app:
        pass


def takes_any_task(task: Task[[int], int] | AsyncTask[[int], int]) -> None:
    task.enqueue(1)


if __name__ == "__main__":
    raise SystemExit(app.run(processes=2, queues=["email"], concurrency={"email": 5}, until_empty=True))
