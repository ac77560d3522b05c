"""Where the master is, as Sentinels see it."""

from app.admission.redis_address import RedisAddress, SentinelAddress, packed
from app.admission.redis_link import RedisTrouble
from app.admission.redis_wire import RedisLost, RedisRefused, dial

_PATIENCE = 0.5


class Sentinels:
    """Asked anew for every connection: after a failover, the master is another."""

    def __init__(self, address: SentinelAddress) -> None:
        self._address = address
        self._order = list(address.sentinels)

    def __repr__(self) -> str:
        return f"{self._address.name} of {','.join(map(repr, self._address.sentinels))}"

    async def find(self) -> RedisAddress:
        """Asks one after the other; who answered last time comes first."""
        why: Exception = RedisLost("no Sentinel answers")
        for sentinel in list(self._order):
            try:
                master = await self._ask(sentinel)
            except RedisTrouble as error:
                why = type(error)(f"Sentinel at {sentinel}: {error}")
            else:
                self._order.remove(sentinel)
                self._order.insert(0, sentinel)
                return master
        raise why

    async def _ask(self, sentinel: RedisAddress) -> RedisAddress:
        wire = await dial(sentinel, budget=_PATIENCE, patience=_PATIENCE, lost=lambda: None)
        try:
            command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.name)
            reply = await wire.call(packed(*command))
        finally:
            wire.close()
        if not isinstance(reply, list) or len(reply) != 2:
            raise RedisRefused(f"it knows no master {self._address.name}")
        return self._address.entry.at(reply[0].decode(), int(reply[1]))
