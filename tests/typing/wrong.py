"""Programs that both type checkers must refuse: each ignore below is an expected refusal, an unused one is an error."""

from __future__ import annotations

from mainspring import Context, Mainspring

app = Mainspring("sqlite:///typing.db")


@app.task
def add(a: int, b: int = 1) -> int:
    return a + b


@app.task
async def send(to: str) -> str:
    return to


@app.task
def with_context(ctx: Context, name: str) -> str:
    return name


add.enqueue("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
add.enqueue()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
add.enqueue(1, c=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
add.enqueue(1, 2, 3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
add.s(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
add("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
with_context.enqueue(Context.local("x"), "name")  # type: ignore[call-arg,arg-type]  # pyright: ignore[reportCallIssue]
with_context.enqueue(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
text: str = add.enqueue(1).result()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
add.options(delai="5m")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
add.options(priority="urgent")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
add.options(retries="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
add.options(name="other")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.run(processes="two")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.run(slots=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.schedule(cron="* * * * *")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
Mainspring(durability="fast")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Mainspring(url=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@app.task(retrys=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
def misspelt() -> None: ...


@app.task(ack="never")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
def wrong_choice() -> None: ...


async def in_async_code() -> None:
    length: int = await send("a")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    await send.aenqueue(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    send("a").upper()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    length = (await send.aenqueue("a")).result() + 1  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    print(length)
