"""An email queue: one job per letter, retried when the line is down and only then, and a newsletter in bulk."""

from pathlib import Path

from mainspring import Backoff, Context, Mainspring

OUTBOX = Path(__file__).with_name("outbox")

app = Mainspring()


def deliver(to: str, subject: str, attempt: int) -> None:
    """Stands in for your mail server: its line is down whenever a letter to ``flaky`` is tried first."""
    if to.startswith("flaky") and attempt == 1:
        raise ConnectionError(f"the line to {to} is down")
    if "@" not in to:
        raise ValueError(f"{to!r} is not an address")
    OUTBOX.mkdir(exist_ok=True)
    (OUTBOX / to).write_text(subject)


@app.task(queue="email", retries=5, retry_on=ConnectionError, backoff=Backoff.fixed("200ms"), timeout="30s")
def send(ctx: Context, to: str, subject: str) -> str:
    deliver(to, subject, ctx.attempt)
    return to


@app.task(queue="email")
def newsletter(ctx: Context, addresses: list[str], subject: str) -> int:
    """Makes one job for each address. When it runs again after a crash, it finds the jobs it has made."""
    for address in ctx.track(addresses, "letters"):
        ctx.spawn(send.s(address, subject))
    return len(addresses)
