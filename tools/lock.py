"""`./dev lock`: resolve anew and export requirements that name versions and hashes, but no package index.

Resolution uses only the default index, so that the hashes are those everybody sees. Run it after a change of the
dependencies in pyproject.toml and commit what it wrote.
"""

from __future__ import annotations

import os
import subprocess

from tools import environment

EXPORT = ["export", "--quiet", "--no-emit-project", "--no-header", "--no-annotate", "--no-emit-index-url"]


def command(args: list[str]) -> int:
    """Write requirements/*.txt; `--upgrade` takes newer versions of everything."""
    uv = environment.find_uv()
    if uv is None:
        raise environment.Failed("lock needs uv: pip install uv")
    env = dict(os.environ) | {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_CONFIG": "1"}
    subprocess.run([uv, "lock", "--quiet", *args], cwd=environment.ROOT, env=env, check=True)
    for group in ("dev", "uv"):
        target = environment.REQUIREMENTS / f"{group}.txt"
        subprocess.run(
            [uv, *EXPORT, "--only-group", group, "-o", str(target)], cwd=environment.ROOT, env=env, check=True
        )
    return 0
