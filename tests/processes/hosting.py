"""``python -m tests.processes.hosting OPTIONS``: a program with a worker inside, until its input ends."""

from __future__ import annotations

import json
import sys

from tests.processes.playground import app

if __name__ == "__main__":
    with app.worker(**json.loads(sys.argv[1])):
        print("ready", flush=True)
        sys.stdin.read()
