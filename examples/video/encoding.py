"""The consumer: encodes videos piece by piece. ``mainspring worker encoding.py`` runs it."""

import hashlib
import os
import time
from pathlib import Path

from mainspring import Context, Event, Mainspring

HOME = Path(os.environ.get("VIDEO_HOME", Path(__file__).parent))
PIECES = 20
PIECE_TAKES = float(os.environ.get("PIECE_TAKES", "0.2"))

app = Mainspring(lease=os.environ.get("VIDEO_LEASE", "15s"))


@app.task(queue="video", retries=3, timeout="10m")
def encode(ctx: Context, name: str) -> str:
    """Pieces that an earlier attempt finished are kept: a job whose worker was killed goes on where it was."""
    pieces = HOME / f"{name}.pieces"
    pieces.mkdir(exist_ok=True)
    ctx.log(f"encoding {name}", have=len(list(pieces.iterdir())))
    for n in range(PIECES):
        ctx.check()  # raises when the job was cancelled
        piece = pieces / f"{n:03}"
        if not piece.exists():
            time.sleep(PIECE_TAKES)  # the work
            part = HOME / f"{name}.part"
            part.write_bytes(hashlib.sha256(f"{name}{n}".encode()).digest())
            part.replace(piece)  # whole or not at all, wherever the worker is killed
        ctx.progress(n + 1, PIECES, "pieces")
    video = HOME / f"{name}.encoded"
    video.write_bytes(b"".join(piece.read_bytes() for piece in sorted(pieces.iterdir())))
    return str(video)


@app.on("succeeded", "dead", "cancelled", task="*.encode")
def tell(event: Event) -> None:
    """Told once, in the worker that stored it."""
    with (HOME / "events.txt").open("a") as file:
        file.write(f"{event.name} {event.job}\n")
