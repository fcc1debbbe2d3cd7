"""Run it: ``python main.py``. Imports 1,000 rows, kills the producer in between, and imports the errors again."""

import os
import subprocess
import sys
import time
from pathlib import Path

from importing import REPORT, app, batch_for

from mainspring import Batch

HERE = Path(__file__).parent


def main() -> None:
    REPORT.unlink(missing_ok=True)
    rows = HERE / "rows.csv"
    rows.write_text("".join(f"thing {n},{'?' if n % 150 == 7 else n}\n" for n in range(1000)))
    with app.worker():
        batch = import_file(rows, kill_after=300)
        errors = app.jobs.list(state="dead", flow=batch.id, limit=100)
        corrected = HERE / "corrected.csv"
        corrected.write_text("".join(job.args["row"].replace("?", "0") + "\n" for job in errors))
        import_file(corrected)
    print(REPORT.read_text(), end="")


def import_file(file: Path, kill_after: int | None = None) -> Batch:
    batch = batch_for(file).open()
    producer = start_producer(file, "0.05")
    if kill_after is not None:
        while batch.counts().total < kill_after:
            time.sleep(0.01)
        producer.kill()
        producer.wait()
        print(f"killed the producer after {batch.counts().total} rows", flush=True)
        producer = start_producer(file, "0")
    producer.wait()
    batch.join(timeout="60s")
    counts = batch.counts()
    print(f"{file.name}: {counts.total} rows, {counts.succeeded} imported, {counts.dead} errors", flush=True)
    return batch


def start_producer(file: Path, piece_takes: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, str(HERE / "producer.py"), file.name]
    return subprocess.Popen(command, cwd=HERE, env={**os.environ, "PIECE_TAKES": piece_takes})


if __name__ == "__main__":
    main()
