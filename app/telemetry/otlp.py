"""Spans as OTLP's bytes. The fields are those of opentelemetry/proto/trace/v1/trace.proto; protobuf's own objects, one for each
attribute and one for each value, take four times as long.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from struct import Struct

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from app.telemetry.span import Caller, Span, Value

_HEAD = Struct(">2s16s2s8s")  # trace_id, span_id
_TIMES = Struct("<BBBQBQ")  # kind, start_time_unix_nano, end_time_unix_nano
_FLOAT = Struct("<Bd")
_FLAGS = {False: b"\x85\x01\x00\x01\x00\x00", True: b"\x85\x01\x00\x03\x00\x00"}  # whether the parent is known to be remote
_SCOPE = b"\x0a\x05conch"


class Encoder:
    """Of the spans of one service."""

    def __init__(self, service: Mapping[str, object]) -> None:
        attributes = b"".join(_attribute(0x0A, name, str(value)) for name, value in service.items())
        self._resource = _field(0x0A, attributes)

    def __call__(self, spans: Iterable[Span]) -> ExportTraceServiceRequest:
        scope = _field(0x0A, _SCOPE) + b"".join([_field(0x12, _span(span)) for span in spans])
        request: ExportTraceServiceRequest = ExportTraceServiceRequest.FromString(
            _field(0x0A, self._resource + _field(0x12, scope))
        )
        return request


def _span(span: Span) -> bytes:
    parts = [_HEAD.pack(b"\x0a\x10", span.trace.to_bytes(16, "big"), b"\x12\x08", span.id.to_bytes(8, "big"))]
    if span.state:
        parts.append(_field(0x1A, span.state.encode()))
    if span.parent:
        parts.append(b"\x22\x08" + span.parent.to_bytes(8, "big"))
    parts.append(_field(0x2A, span.name.encode()))
    parts.append(_TIMES.pack(0x30, span.kind, 0x39, span.started, 0x41, span.ended))
    parts += [_attribute(0x4A, name, value) for name, value in span.attributes.items()]
    if span.link is not None:
        parts.append(_field(0x6A, _link(span.link)))
    if span.failure:
        parts.append(_field(0x7A, _field(0x12, span.failure.encode()) + b"\x18\x02"))
    parts.append(_FLAGS[span.is_remote])
    return b"".join(parts)


def _link(caller: Caller) -> bytes:
    ids = _HEAD.pack(b"\x0a\x10", caller.trace.to_bytes(16, "big"), b"\x12\x08", caller.id.to_bytes(8, "big"))
    return ids + (_field(0x1A, caller.state.encode()) if caller.state else b"")


def _attribute(tag: int, name: str, value: Value) -> bytes:
    if isinstance(value, str):
        any_value = _field(0x0A, value.encode())
    elif isinstance(value, bool):
        any_value = b"\x10\x01" if value else b"\x10\x00"
    elif isinstance(value, int):
        any_value = b"\x18" + _number(value % 2**64)
    else:
        any_value = _FLOAT.pack(0x21, value)
    return _field(tag, _name(name) + _field(0x12, any_value))


@lru_cache(64)
def _name(name: str) -> bytes:
    return _field(0x0A, name.encode())


def _field(tag: int, content: bytes) -> bytes:
    size = len(content)
    return (bytes((tag, size)) if size < 0x80 else bytes((tag,)) + _number(size)) + content


def _number(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)
