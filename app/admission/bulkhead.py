"""Bounded requests in flight per ensemble, so that one that is slow can't sink the others."""

from types import TracebackType

from app.errors import Overloaded


class Bulkhead:
    """So many berths and no queue: what finds none is refused at once."""

    def __init__(self, name: str, berths: int, *, retry_after: int = 1) -> None:
        if berths < 1:
            raise ValueError("a bulkhead needs at least one berth")
        self.name = name
        self.berths = berths
        self.taken = 0
        self._retry_after = retry_after

    def berth(self) -> "Berth":
        """`with bulkhead.berth():` raises `Overloaded` when full; the berth is free again on the way out, whatever happens."""
        return Berth(self)

    def take(self) -> None:
        if self.taken >= self.berths:
            raise Overloaded("All places for requests to this model are taken.", retry_after=self._retry_after)
        self.taken += 1

    def free(self) -> None:
        self.taken -= 1


class Berth:
    __slots__ = ("_bulkhead",)

    def __init__(self, bulkhead: Bulkhead) -> None:
        self._bulkhead = bulkhead

    def __enter__(self) -> None:
        self._bulkhead.take()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bulkhead.free()
