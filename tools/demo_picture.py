"""Draw `docs/images/demo.svg`: a terminal that shows a real run of `mainspring demo`.

    python -m tools.demo_picture [--seconds 12] [--from LOG]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "demo.svg"
WIDTH = 100
COMMAND = "$ mainspring demo"

THEME = TerminalTheme(
    (24, 26, 31),
    (220, 223, 228),
    [(24, 26, 31), (224, 108, 117), (152, 195, 121), (229, 192, 123), (97, 175, 239), (198, 120, 221), (86, 182, 194),
     (171, 178, 191)],
)  # fmt: skip

STYLES = {
    r"^ *[\d.]+ s": "dim",
    r"\b(succeeded|done|rescue)\b": "green",
    r"\brunning\b": "cyan",
    r"\bretrying\b": "yellow",
    r"\b(kill|SIGKILL)\b": "red",
    r"\b(ready|scheduled)\b": "blue",
    r"\b0 lost: every job finished\b": "bold green",
}

FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""Rich's own format loads a font from another host; a picture in a repository must not."""


def main() -> int:
    """Run the demo, or read its output from a file, and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--from", dest="log", type=Path, help="output of an earlier run")
    given = parser.parse_args()
    lines = given.log.read_text().splitlines() if given.log else run_demo(given.seconds)
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(shorten(lines)))
    print(f"wrote {PICTURE}")
    return 0


def run_demo(seconds: float) -> list[str]:
    command = [sys.executable, "-m", "mainspring", "demo", "--headless", "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def shorten(lines: list[str]) -> list[str]:
    """Mask the temporary path and break long lines after a comma or colon, so that they fit the picture."""
    shown: list[str] = []
    for line in lines:
        text = re.sub(r"sqlite:/+\S*", "sqlite:///demo.db", line)
        while len(text) > WIDTH - 2:
            cut = max(text.rfind(mark, 0, WIDTH - 2) for mark in (", ", ": ", "; ", "  "))
            shown.append(text[: cut + 1].rstrip())
            text = " " * 17 + text[cut + 1 :].strip()
        shown.append(text)
    return shown


def draw(lines: list[str]) -> str:
    console = Console(record=True, width=WIDTH, file=Path("/dev/null").open("w"), force_terminal=True)  # noqa: SIM115
    console.print(Text(COMMAND, style="bold"))
    for line in lines:
        text = Text(line)
        for pattern, style in STYLES.items():
            text.highlight_regex(pattern, style)
        console.print(text)
    return console.export_svg(title="mainspring demo", theme=THEME, code_format=FORMAT, unique_id="demo")


if __name__ == "__main__":
    sys.exit(main())
