"""``python -m tests.mutations [--table] [name ...]``"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from .runner import ALL, TABLE, WITHOUT_FAULT, caught, table


def main(arguments: list[str]) -> int:
    if arguments == ["--table"]:
        TABLE.write_text(table())
        return 0
    known = {mutation.name: mutation for mutation in ALL}
    if unknown := [name for name in arguments if name not in known]:
        raise SystemExit(f"no such mutation: {', '.join(unknown)}\nThere are: {', '.join(known)}")
    chosen = [known[name] for name in arguments] or list(ALL)
    if not arguments and (failing := caught(WITHOUT_FAULT)):
        raise SystemExit(f"{failing} fails without any fault: fix it first")
    survivors = []
    with ThreadPoolExecutor(2) as pool:
        for mutation, failing in zip(chosen, pool.map(caught, chosen), strict=True):
            print(
                f"{'caught' if failing else 'SURVIVED':8}  {mutation.name:26} {failing or mutation.promise}", flush=True
            )
            survivors += [] if failing else [mutation.name]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} caught")
    return bool(survivors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
