"""``python -m mainspring.testing.servers._guard PID BORN SIGNAL``: end a server with the process that started it.

That process holds the other end of our standard input, which closes when it ends, however it does.
"""

from __future__ import annotations

import contextlib
import sys

import psutil

from mainspring.testing.servers import _ledger


def main(pid: int, born: float, number: int) -> None:
    with contextlib.suppress(KeyboardInterrupt):  # a terminal's signals are not for us
        sys.stdin.read()
    if _ledger.alive(pid, born):
        psutil.Process(pid).send_signal(number)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
