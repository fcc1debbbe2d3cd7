"""An import of rows as a batch: ``mainspring worker importing.py``, and ``python producer.py`` for each file."""

from pathlib import Path
from uuid import UUID

from mainspring import Batch, Mainspring

REPORT = Path(__file__).with_name("report.txt")

app = Mainspring()


@app.task(never_retry_on=ValueError)
def import_row(row: str) -> int:
    """Stands in for your database. A price that is no number is refused: trying again would not help."""
    name, price = row.split(",")
    if not price.isdecimal():
        raise ValueError(f"the price of {name} is {price!r}")
    return int(price)


@app.task
def alert(batch: UUID) -> None:
    """As soon as the first row is refused, and once."""
    report("alert", batch)


@app.task
def finished(batch: UUID) -> None:
    """When no row is left, whatever happened to them."""
    counts = app.flows.batch_of(batch).counts()
    report("finished", batch, f"{counts.succeeded} of {counts.total} rows imported, {counts.dead} errors")


@app.task
def succeeded(batch: UUID) -> None:
    """When all rows are imported."""
    report("succeeded", batch)


def batch_for(file: Path) -> Batch:
    """The batch of a file. While it is open, its key finds it again: from another process, after a crash."""
    return app.flows.batch(
        f"import of {file.name}", key=f"import:{file.name}",
        on_dead=alert, on_finished=finished, on_success=succeeded,
    )  # fmt: skip


def report(what: str, batch: UUID, text: str = "") -> None:
    with REPORT.open("a") as lines:
        lines.write(f"{app.flows.get(batch).name}: {what} {text}".strip() + "\n")
