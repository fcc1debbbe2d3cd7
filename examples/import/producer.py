"""Adds the rows of a file to its batch: ``python producer.py rows.csv``. Kill it, start it again, and it goes on."""

import os
import sys
import time
from pathlib import Path

from importing import app, batch_for, import_row

PIECE = 50


def main(file: Path) -> None:
    rows = file.read_text().splitlines()
    with batch_for(file) as batch:
        added = batch.counts().total  # by an earlier run of this program, piece by piece and in order
        print("goes on after" if added else "starts with", added, "rows", flush=True)
        for first in range(added, len(rows), PIECE):
            batch.add_many(import_row.s(row) for row in rows[first : first + PIECE])  # all of them or none
            time.sleep(float(os.environ.get("PIECE_TAKES", "0")))  # a slow source
    app.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
