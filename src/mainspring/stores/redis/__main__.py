"""``python -m mainspring.stores.redis [NAMESPACE]``: print the ACL line, without a server."""

from __future__ import annotations

import sys

from .driver import acl

print(acl.line(*sys.argv[1:2]))  # noqa: T201 - this is its task
