"""Which tenants have a series of their own."""

OTHER = "other"
_BUSIER = 2
"""By what factor a newcomer must exceed whoever gives way, so that two alike don't take turns."""
_LEAST = 60
"""Requests between two rankings that earn a place; a place that is given away is one more series in Prometheus's store."""


class Ranking:
    """The busiest, by name; all the rest are `other`. Nobody is moved between two calls of `settle`."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._placed: set[str] = set()
        self._counts: dict[str, int] = {}

    def name(self, tenant: str) -> str:
        """Counts one request of the tenant."""
        counts = self._counts
        counts[tenant] = counts.get(tenant, 0) + 1
        if tenant in self._placed:
            return tenant
        if len(self._placed) < self._places:
            self._placed.add(tenant)
            return tenant
        return OTHER

    def settle(self) -> set[str]:
        """Who has lost its place to a tenant that asked far more since the last call."""
        counts, self._counts = self._counts, {}
        rising = sorted((tenant for tenant in counts if tenant not in self._placed), key=lambda tenant: -counts[tenant])
        falling = sorted(self._placed, key=lambda tenant: counts.get(tenant, 0))
        lost = set()
        for newcomer, holder in zip(rising, falling, strict=False):
            if counts[newcomer] < _LEAST or counts[newcomer] <= _BUSIER * counts.get(holder, 0):
                break
            self._placed.remove(holder)
            self._placed.add(newcomer)
            lost.add(holder)
        return lost
