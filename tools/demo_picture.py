"""Draw `docs/images/demo.svg`: a terminal that shows a real run of `mainspring demo`.

python -m tools.demo_picture [--seconds 12] [--from LOG]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from html import escape
from pathlib import Path

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "demo.svg"
COLUMNS = 92
FONT, LINE = 14, 20
"""Pixels: the size of a letter and the height of a line."""

COLOURS = {
    r"^ *[\d.]+ s": "#7f848e",
    r"\b0 lost: every job finished": "#98c379",
    r"\bsucceeded\b|\bdone\b|\brescue\b": "#98c379",
    r"\brunning\b": "#56b6c2",
    r"\bretrying\b": "#e5c07b",
    r"\bkill\b|\bSIGKILL\b": "#e06c75",
    r"\bready\b|\bscheduled\b": "#61afef",
}
_COLOURED = re.compile("|".join(f"({pattern})" for pattern in COLOURS))


def main() -> int:
    """Run the demo, or read the output of an earlier run from a file, and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--from", dest="log", type=Path, help="output of an earlier run")
    given = parser.parse_args()
    lines = given.log.read_text().splitlines() if given.log else run_demo(given.seconds)
    PICTURE.write_text(draw(["$ mainspring demo", *fold(lines)]))
    print(f"wrote {PICTURE}")
    return 0


def run_demo(seconds: float) -> list[str]:
    """The lines that the demo prints."""
    command = [sys.executable, "-m", "mainspring", "demo", "--headless", "--seconds", str(seconds)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def fold(lines: list[str]) -> list[str]:
    """Shorten the store's path, and fold lines that are longer than the terminal."""
    folded: list[str] = []
    for line in lines:
        text = re.sub(r"sqlite:/+\S*", "sqlite:///demo.db", line)
        while len(text) > COLUMNS:
            cut = max(text.rfind(mark, 0, COLUMNS - 1) for mark in (", ", ": ", "; "))
            folded.append(text[: cut + 1])
            text = " " * 17 + text[cut + 2 :]
        folded.append(text)
    return folded


def draw(lines: list[str]) -> str:
    """The picture: one text element for each line, so that any monospace font keeps the columns."""
    width, height = int(COLUMNS * FONT * 0.62) + 32, len(lines) * LINE + 56
    rows = "\n".join(f'<text x="16" y="{52 + n * LINE}">{_colour(line)}</text>' for n, line in enumerate(lines))
    buttons = "".join(
        f'<circle cx="{20 + 18 * n}" cy="18" r="6" fill="{colour}"/>'
        for n, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f"<title>mainspring demo</title>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#181a1f"/>\n{buttons}\n'
        f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" '
        f'font-size="{FONT}" fill="#dcdfe4" xml:space="preserve">\n{rows}\n</g>\n</svg>\n'
    )


def _colour(line: str) -> str:
    parts, end = [], 0
    for match in _COLOURED.finditer(line):
        colour = list(COLOURS.values())[(match.lastindex or 1) - 1]
        parts += [_text(line[end : match.start()]), f'<tspan fill="{colour}">{_text(match[0])}</tspan>']
        end = match.end()
    return "".join([*parts, _text(line[end:])])


def _text(text: str) -> str:
    """XML text whose spaces no viewer folds."""
    return escape(text).replace(" ", "\N{NO-BREAK SPACE}")


if __name__ == "__main__":
    sys.exit(main())
