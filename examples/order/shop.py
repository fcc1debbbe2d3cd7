"""An order in four steps, and what takes each step back: ``mainspring worker shop.py``."""

from dataclasses import dataclass
from pathlib import Path

from mainspring import Backoff, Chain, Context, Mainspring

JOURNAL = Path(__file__).with_name("journal.txt")
SOON = Backoff.fixed("100ms")

app = Mainspring()


@dataclass
class Order:
    number: int
    book: str
    price: int


class Declined(Exception):
    """The bank has said no. Asking again would not help."""


@app.task
def validate(order: Order) -> Order:
    if order.price <= 0:
        raise ValueError(f"order {order.number} has no price")
    return order


@app.task
def reserve(order: Order) -> Order:
    note(order, "reserved")
    return order


@app.task
def release(order: Order) -> None:
    note(order, "released")


@app.task(never_retry_on=Declined)
def pay(order: Order) -> Order:
    if order.price > 100:
        raise Declined(f"{order.price} is over the limit of the card")
    note(order, "paid")
    return order


@app.task(retries=5, backoff=SOON)
def refund(ctx: Context, order: Order) -> None:
    if ctx.attempt == 1:
        raise ConnectionError("the bank does not answer")  # it does when it is asked again
    note(order, "refunded")


@app.task(retries=1, backoff=SOON)
def confirm(order: Order) -> str:
    if "print" in order.book:
        raise LookupError(f"{order.book!r} cannot be sent")
    note(order, "confirmed")
    return f"{order.book!r} is on its way"


def checkout(order: Order) -> Chain[str]:
    """The four steps. ``undo`` names what takes a step back if a later one fails."""
    return (validate.s(order) | reserve).undo(release).then(pay).undo(refund) | confirm


def note(order: Order, what: str) -> None:
    """Stands in for your database, your bank and your mail server."""
    with JOURNAL.open("a") as file:
        file.write(f"{order.number} {what}\n")


def noted(number: int) -> list[str]:
    """What was done for this order, in order."""
    return [line.split()[1] for line in JOURNAL.read_text().splitlines() if line.startswith(f"{number} ")]
