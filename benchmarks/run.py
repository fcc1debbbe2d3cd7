"""``./dev bench [NAME...] [--n N] [--json FILE]``."""

import sys
from pathlib import Path


def main() -> int:
    """The benchmarks are modules of the project's root."""
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from benchmarks.command import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
