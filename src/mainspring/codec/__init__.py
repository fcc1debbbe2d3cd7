"""Arguments, results and errors as JSON, for the store.

Types come from the task's signature, never from the payload; nothing is pickled and no class is looked up by a stored
name. A value that would not be read back equal is refused when it is stored, with the path of the argument.
"""

from mainspring.codec.canonical import canonical
from mainspring.codec.failures import ErrorRecord, clean_text, describe_error, first_line
from mainspring.codec.items import ItemSignature
from mainspring.codec.results import RESULT_LIMIT, EncodedResult, decode_result, encode_result
from mainspring.codec.signature import PAYLOAD_LIMIT, Signature, dumps_call
from mainspring.codec.wire import DEPTH_LIMIT, dumps, loads

__all__ = [
    "DEPTH_LIMIT",
    "PAYLOAD_LIMIT",
    "RESULT_LIMIT",
    "EncodedResult",
    "ErrorRecord",
    "ItemSignature",
    "Signature",
    "canonical",
    "clean_text",
    "decode_result",
    "describe_error",
    "dumps",
    "dumps_call",
    "encode_result",
    "first_line",
    "loads",
]
