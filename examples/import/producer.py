"""Adds the rows of a file to its batch: ``python producer.py rows.csv``.

Kill it and start it again: it starts over, and no row becomes a second job.
"""

import os
import sys
import time
from pathlib import Path

from importing import app, batch_for, import_row

PIECE = 50


def main(file: Path) -> None:
    rows = file.read_text().splitlines()
    with batch_for(file) as batch:
        for first in range(0, len(rows), PIECE):
            calls = [import_row.s(row) for row in rows[first : first + PIECE]]
            jobs = batch.add_many(calls, at=first)  # a row that an earlier run has added is not added again
            print(f"rows from {first}: {sum(job.created for job in jobs)} added", flush=True)
            time.sleep(float(os.environ.get("PIECE_TAKES", "0")))  # a slow source
    app.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
