"""Spans, as little as can be: those of OpenTelemetry's SDK cost a request more than all else that the gateway does for it.

Its sampler, batches and exporters stay; what a span is between its start and the collector is ours (docs/adr/0019).
"""

from dataclasses import dataclass, field
from enum import IntEnum
from random import getrandbits
from time import time_ns
from types import SimpleNamespace
from typing import ClassVar

Value = str | bool | int | float


class Kind(IntEnum):
    """As OTLP numbers them."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3


@dataclass(slots=True)
class Caller:
    """Whose span is above ours, by its `traceparent`."""

    trace: int
    id: int
    sampled: bool
    state: str = ""


@dataclass(slots=True)
class Span:
    """One that is sampled is exported at its end; any other is an id, for the log."""

    trace: int
    name: str
    kind: Kind = Kind.INTERNAL
    sampled: bool = True
    parent: int = 0
    state: str = ""
    is_remote: bool = False
    """Whether its parent is in another process."""
    link: Caller | None = None
    attributes: dict[str, Value] = field(default_factory=dict)
    failure: str = ""
    """Why it failed, in our own words; empty where it did not."""
    id: int = field(default_factory=lambda: getrandbits(64) or 1)
    started: int = field(default_factory=time_ns)
    ended: int = 0

    context: ClassVar = SimpleNamespace(trace_flags=SimpleNamespace(sampled=True))
    """All that the SDK's batches ask of a span."""

    @property
    def trace_id(self) -> str:
        return f"{self.trace:032x}"
