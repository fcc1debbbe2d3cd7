"""Photos, a thumbnail of each, and one sheet with all thumbnails: ``mainspring worker photos.py``."""

import random
from pathlib import Path

from mainspring import Mainspring

FOLDER = Path(__file__).with_name("photos")
SIZE, SMALL = 64, 8
"""The width and height of a photo and of a thumbnail, in pixels of one byte."""

app = Mainspring()


@app.task
def find(pattern: str) -> list[str]:
    """The names of the photos. How many there are is known when this has run."""
    return sorted(path.name for path in FOLDER.glob(pattern))


@app.task(retries=0)
def shrink(name: str) -> str:
    """Makes a thumbnail, and returns the name of its file: results are for names and numbers, not for images."""
    photo = (FOLDER / name).read_bytes()
    if len(photo) != SIZE * SIZE:
        raise ValueError(f"{name} is not a photo")
    step = SIZE // SMALL
    rows = [photo[y * SIZE : (y + 1) * SIZE : step] for y in range(0, SIZE, step)]
    thumbnail = FOLDER / f"{name}.small"
    thumbnail.write_bytes(b"".join(rows))
    return thumbnail.name


@app.task
def combine(thumbnails: list[str], sheet: str) -> str:
    """Runs once, when all thumbnails are there. Gets their names in the order of the photos."""
    images = [(FOLDER / name).read_bytes() for name in thumbnails]
    (FOLDER / sheet).write_bytes(b"P5 %d %d 255\n" % (SMALL, SMALL * len(images)) + b"".join(images))
    return f"{sheet}: {len(images)} thumbnails"


def take_photos(n: int) -> list[str]:
    """Stands in for your camera."""
    FOLDER.mkdir(exist_ok=True)
    for number in range(n):
        (FOLDER / f"{number:03}.raw").write_bytes(random.Random(number).randbytes(SIZE * SIZE))
    return [f"{number:03}.raw" for number in range(n)]
