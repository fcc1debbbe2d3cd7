"""The ``StoreError`` for each error of the server and of a connection."""

from __future__ import annotations

from mainspring.common.redact import redact
from mainspring.errors import (
    StoreConflict,
    StoreError,
    StoreFull,
    StoreMisconfigured,
    StoreReadOnly,
    StoreUnavailable,
)

from .resp import ConnectionBroken, ServerError

_FULL = "OOM command not allowed"
_READ_ONLY = "READONLY You"
_CONFLICT = "CONFLICT "
_UNAVAILABLE = (
    "LOADING",
    "BUSY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "UNBLOCKED",
    "NOREPLICAS",
    "MISCONF",
    "DENIED",
)
_LOGIN = ("NOAUTH", "WRONGPASS")
_TOO_MANY_CLIENTS = "max number of clients"
_FORBIDDEN = "NOPERM"


def translate(error: Exception, url: str = "") -> StoreError | None:
    """The ``StoreError`` for an error of the driver; None for any other error."""
    match error:
        case StoreError():
            return error
        case ServerError():
            return _refused(redact(str(error)), error.code, url)
        case OverflowError() | UnicodeEncodeError():
            return StoreConflict(f"the data cannot be stored: {error}", url=url)
        case ConnectionBroken():
            return _unavailable(redact(str(error)), url)
    return None


def at_open(error: ServerError, url: str) -> StoreError:
    """The error to raise while the store is opened: ``StoreUnavailable`` only where waiting can help."""
    text = redact(str(error))
    if _READ_ONLY in text:
        return StoreReadOnly("the server is a read-only replica", url=url, hint="Use the address of the primary.")
    if _is_login(text, error.code):
        return StoreMisconfigured(**_login(text), url=url)
    if _is_forbidden(text):
        return StoreMisconfigured(**_forbidden(text), url=url)
    return _refused(text, error.code, url)


def _refused(text: str, code: str, url: str) -> StoreError:
    if code == "CONFLICT":
        return StoreConflict(text.removeprefix(_CONFLICT), url=url)
    if _FULL in text:  # before Redis 7 the error of a script begins with the position in the script, here and below
        return StoreFull(
            "the server has reached its maxmemory",
            url=url,
            hint="Raise maxmemory, or shorten the retention. Workers can still acknowledge running jobs.",
        )
    if _READ_ONLY in text:
        return StoreUnavailable(
            "the server has become a read-only replica", url=url, hint="Check that the URL leads to the new primary."
        )
    if _is_login(text, code):
        return StoreUnavailable(**_login(text), url=url)
    if _is_forbidden(text):
        return StoreUnavailable(**_forbidden(text), url=url)
    if code in _UNAVAILABLE or _TOO_MANY_CLIENTS in text:
        return _unavailable(text, url)
    return StoreConflict(f"the server refused the call: {text}", url=url)


def _is_login(text: str, code: str) -> bool:
    return code in _LOGIN or "without any password configured" in text


def _is_forbidden(text: str) -> bool:
    return text.startswith(_FORBIDDEN) or "User doesn't have permissions" in text or "ACL failure" in text


def _login(text: str) -> dict[str, str]:
    return {
        "message": f"the server refused the login: {text}",
        "hint": "Check the user and the password in the URL.",
    }


def _forbidden(text: str) -> dict[str, str]:
    return {
        "message": f"the server's ACL forbids what Mainspring needs: {text}",
        "hint": "Run python -m mainspring.stores.redis: it prints the ACL line that allows this and nothing else.",
    }


def _unavailable(text: str, url: str) -> StoreError:
    return StoreUnavailable(
        f"the server does not answer: {text}",
        url=url,
        hint="Check that the server is running and that the address in the URL is right.",
    )
