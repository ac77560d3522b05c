"""Memory for bodies that are still arriving."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.errors import Overloaded


class Hold:
    """Until a body is whole, none of its tenant's limits counts it: this keeps a hundred uploads from filling a process. Half
    of it may be one tenant's.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._of: Counter[str] = Counter()

    @contextmanager
    def stowing(self, tenant: str) -> Iterator[Callable[[int], None]]:
        """Takes so many bytes more, which are given back at the end; raises `Overloaded` where there is no room for them."""
        stowed = 0

        def stow(size: int) -> None:
            nonlocal stowed
            if self._held + size > self._most or self._of[tenant] + size > self._most // 2:
                raise Overloaded("too many large bodies are arriving at once", retry_after=1)
            self._held += size
            self._of[tenant] += size
            stowed += size

        try:
            yield stow
        finally:
            self._held -= stowed
            self._of[tenant] -= stowed
            if not self._of[tenant]:
                del self._of[tenant]
