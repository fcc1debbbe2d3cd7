"""``python -m mainspring.stores.redis [NAMESPACE]``: the ACL line, without a server."""

from __future__ import annotations

import sys

from . import acl

print(acl.line(*sys.argv[1:2]))  # noqa: T201 - that is its task
