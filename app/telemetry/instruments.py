"""Counters, gauges and histograms for one event loop, in Prometheus's formats.

All of them are written and read on the same loop, so that a number needs no lock: prometheus_client takes two for each, and
walks a list for each bucket. Its formats are used as they are.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from time import time
from typing import ClassVar, Generic, TypeVar

from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

_UNITS = ("seconds", "bytes")


class Number:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, by: float = 1) -> None:
        self.value += by

    def set(self, value: float) -> None:
        self.value = value


class Spread:
    """How often which size was seen. An exemplar is the latest trace in its bucket."""

    __slots__ = ("_bounds", "counts", "exemplars", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.exemplars: dict[int, Exemplar] = {}
        self.total = 0.0

    def observe(self, value: float, trace_id: str = "") -> None:
        at = bisect_left(self._bounds, value)
        self.counts[at] += 1
        self.total += value
        if trace_id:
            self.exemplars[at] = Exemplar({"trace_id": trace_id}, value, time())


Child = TypeVar("Child", Number, Spread)


class Instrument(Generic[Child]):
    """A family of series, one for each combination of its labels' values. Without labels there is one from the start."""

    kind: ClassVar[str]

    def __init__(self, name: str, meaning: str, names: tuple[str, ...], new: Callable[[], Child]) -> None:
        self.name, self.meaning, self.names = name, meaning, names
        self._new: Callable[[], Child] = new
        self.children: dict[tuple[str, ...], Child] = {}
        if not names:
            self.labels()

    @property
    def unit(self) -> str:
        last = self.name.rpartition("_")[2]
        return last if last in _UNITS else ""

    def labels(self, *values: str) -> Child:
        child = self.children.get(values)
        if child is None:
            if len(values) != len(self.names):
                raise ValueError(f"{self.name} has the labels {self.names}")
            child = self.children[values] = self._new()
        return child

    def forget(self, doomed: Callable[[tuple[str, ...]], bool]) -> None:
        for values in [values for values in self.children if doomed(values)]:
            del self.children[values]

    def clear(self) -> None:
        self.children.clear()

    def family(self) -> Metric:
        family = Metric(self.name, self.meaning, self.kind, self.unit)
        for values, child in self.children.items():
            self.show(family, dict(zip(self.names, values, strict=True)), child)
        return family

    def show(self, family: Metric, labels: dict[str, str], child: Child) -> None:
        raise NotImplementedError


class Counter(Instrument[Number]):
    kind = "counter"

    def inc(self, by: float = 1) -> None:
        self.labels().inc(by)

    def show(self, family: Metric, labels: dict[str, str], child: Number) -> None:
        family.add_sample(f"{self.name}_total", labels, child.value)


class Gauge(Instrument[Number]):
    kind = "gauge"

    def set(self, value: float) -> None:
        self.labels().set(value)

    def show(self, family: Metric, labels: dict[str, str], child: Number) -> None:
        family.add_sample(self.name, labels, child.value)


class Histogram(Instrument[Spread]):
    kind = "histogram"

    def __init__(self, name: str, meaning: str, names: tuple[str, ...], bounds: tuple[float, ...]) -> None:
        super().__init__(name, meaning, names, lambda: Spread(bounds))
        self.bounds = bounds
        self._les = [*map(floatToGoString, bounds), "+Inf"]

    def observe(self, value: float) -> None:
        self.labels().observe(value)

    def show(self, family: Metric, labels: dict[str, str], child: Spread) -> None:
        seen = 0
        for at, le in enumerate(self._les):
            seen += child.counts[at]
            family.add_sample(f"{self.name}_bucket", {**labels, "le": le}, seen, None, child.exemplars.get(at))
        family.add_sample(f"{self.name}_count", labels, seen)
        family.add_sample(f"{self.name}_sum", labels, child.total)


class Registry:
    """Makes instruments and shows them, in the order in which they were made."""

    def __init__(self) -> None:
        self.instruments: list[Counter | Gauge | Histogram] = []

    def counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return self._kept(Counter(name, meaning, labels, Number))

    def gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return self._kept(Gauge(name, meaning, labels, Number))

    def histogram(self, name: str, meaning: str, *labels: str, bounds: tuple[float, ...]) -> Histogram:
        return self._kept(Histogram(name, meaning, labels, bounds))

    def collect(self) -> Iterator[Metric]:
        return (instrument.family() for instrument in self.instruments)

    def _kept(self, instrument: "Kept") -> "Kept":
        self.instruments.append(instrument)
        return instrument


Kept = TypeVar("Kept", Counter, Gauge, Histogram)
