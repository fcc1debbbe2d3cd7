"""What the driver's errors mean."""

from __future__ import annotations

from redis import exceptions as driver

from mainspring.errors import StoreConflict, StoreError, StoreFull, StoreReadOnly, StoreUnavailable

_FULL = "OOM command not allowed"
_READ_ONLY = "READONLY You"
_CONFLICT = "CONFLICT "
_AWAY = ("LOADING", "BUSY ", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "UNBLOCKED", "NOREPLICAS", "MISCONF")


def translate(error: Exception, url: str = "") -> StoreError | None:
    """The ``StoreError`` that a driver's error means; None for what is not the driver's."""
    if isinstance(error, StoreError):
        return error
    text = str(error)
    match error:
        case driver.OutOfMemoryError():
            return _full(url)
        case driver.ReadOnlyError():
            return _read_only(url)
        case driver.AuthenticationError() | driver.AuthorizationError():
            return StoreUnavailable(
                f"the server refused the login: {text}", url=url, hint="Check the user and the password in the URL."
            )
        case driver.ConnectionError() | driver.TimeoutError() | driver.BusyLoadingError():
            return _unavailable(text, url)
        case driver.ResponseError():
            return _refused(text, url)
        case driver.DataError() | OverflowError() | UnicodeEncodeError():
            return StoreConflict(f"the data cannot be stored: {text}", url=url)
        case driver.RedisError() | OSError():
            return _unavailable(text, url)
    return None


def _refused(text: str, url: str) -> StoreError:
    if text.startswith(_CONFLICT):
        return StoreConflict(text.removeprefix(_CONFLICT), url=url)
    if _FULL in text:  # before Redis 7 a script's error has the script's place in front
        return _full(url)
    if _READ_ONLY in text:
        return _read_only(url)
    if text.startswith(_AWAY):
        return _unavailable(text, url)
    return StoreConflict(f"the server refused the call: {text}", url=url)


def _full(url: str) -> StoreError:
    return StoreFull(
        "the server has reached its maxmemory",
        url=url,
        hint="Raise maxmemory, or shorten the retention; running jobs can still be reported.",
    )


def _read_only(url: str) -> StoreError:
    return StoreReadOnly("the server is a read-only replica", url=url, hint="Use the address of the primary.")


def _unavailable(text: str, url: str) -> StoreError:
    return StoreUnavailable(
        f"the server does not answer: {text}", url=url, hint="Is it running, and is the address in the URL right?"
    )
