"""What `RedisLimiter` keeps for a tenant on a route: its commands, packed as far as they can be, and what it last heard."""

import hashlib
from dataclasses import dataclass, field
from importlib.resources import files

from app.admission.limiter import Verdict
from app.admission.redis_cluster import slot_of
from app.admission.ruling import Ruling, verdict
from app.admission.terms import DAY_US, Limit, Terms, share

_MEMORY_US = 1_000_000
_FRESH_US = 10_000
_LETTERS = {"requests": b"r", "characters": b"c", "in_flight": b"f", "daily": b"d"}


_THREE_MORE = b"%b" + 3 * b"$%d\r\n%b\r\n"


def _bulk(*arguments: bytes) -> bytes:
    return b"".join([b"$%d\r\n%b\r\n" % (len(argument), argument) for argument in arguments])


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script, as the start of a command that runs it."""

    by_digest: bytes
    by_source: bytes

    @classmethod
    def read(cls, name: str) -> "Script":
        source = files(__package__).joinpath(name).read_bytes()
        digest = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()
        return cls(_bulk(b"EVALSHA", digest), _bulk(b"EVAL", source))

    def command(self, keys: list[bytes], arguments: list[bytes], more: int = 0) -> bytes:
        """`more` arguments are still to be appended."""
        head = b"*%d\r\n" % (3 + len(keys) + len(arguments) + more)
        return head + self.by_digest + _bulk(b"%d" % len(keys), *keys, *arguments)

    def in_full(self, command: bytes) -> bytes:
        """The same command for a server that does not have the script."""
        return command.replace(self.by_digest, self.by_source, 1)


@dataclass(frozen=True, slots=True)
class _Told:
    """A refusal that holds for requests of up to `most` characters, from one moment until another (µs)."""

    verdict: Verdict
    most: int
    at: int
    until: int


@dataclass(slots=True, repr=False)
class Account:
    terms: Terms
    slot: int
    closed: bool
    admit: bytes
    refund: Script
    releases: tuple[bytes, ...]
    _share: tuple[int, Terms] | None = field(default=None, init=False)
    _refused: tuple[Ruling, int] | None = field(default=None, init=False)
    _forgot_at: int = field(default=0, init=False)
    _told: _Told | None = field(default=None, init=False)

    @classmethod
    def opened(cls, terms: Terms, admit: Script, refund: Script) -> "Account":
        keys = [limit.key.encode() for limit in terms.limits]
        per_limit = [argument for limit in terms.limits for argument in _arguments(limit)]
        slots = (limit.key.encode() for limit in terms.limits if limit.policy == "in_flight")
        return cls(
            terms=terms,
            slot=slot_of(terms.tenant.id),
            closed=any(limit.enforced and limit.on_redis_loss == "closed" for limit in terms.limits),
            admit=admit.command(keys, per_limit, more=3),
            refund=refund,
            releases=tuple(b"*3\r\n" + _bulk(b"ZREM", key) for key in slots),
        )

    def share(self, replicas: int) -> Terms:
        """What is left of the terms without Redis."""
        if self._share is None or self._share[0] != replicas:
            self._share = replicas, share(self.terms, replicas)
        return self._share[1]

    def admission(self, characters: int, lease_us: int, member: bytes) -> bytes:
        cost, lease = b"%d" % characters, b"%d" % lease_us
        return _THREE_MORE % (self.admit, len(cost), cost, len(lease), lease, len(member), member)

    def release(self, member: bytes) -> list[bytes]:
        return [b"%b$%d\r\n%b\r\n" % (command, len(member), member) for command in self.releases]

    def repayment(self, characters: int, violated: int, at: int) -> bytes | None:
        spent = [limit for i, limit in enumerate(self.terms.limits) if not violated >> i & 1 and limit.policy != "in_flight"]
        if not spent:
            return None
        keys = [limit.key.encode() for limit in spent]
        amounts = [argument for limit in spent for argument in (_LETTERS[limit.policy], b"%d" % limit.cost(characters))]
        return self.refund.command(keys, [*amounts, b"%d" % at])

    @property
    def remembers(self) -> bool:
        return self._refused is not None

    def remember(self, ruling: Ruling, at: int) -> None:
        """`at`, on the monotonic clock, must not be later than the decision: nobody is believed to owe more than they do."""
        if at > self._forgot_at:
            self._refused, self._told = (ruling, at), None

    def forget(self, at: int) -> None:
        """Also what was asked before and is still to be heard."""
        self._refused, self._told, self._forgot_at = None, None, at

    def recall(self, characters: int, at: int) -> Ruling | None:
        """The refusal that Redis would give, where that is certain; other replicas' refunds are unseen, so not for long."""
        if self._refused is None:
            return None
        ruling, heard_at = self._refused
        elapsed = at - heard_at
        now = ruling.now + elapsed
        if elapsed > _MEMORY_US or now // DAY_US != ruling.now // DAY_US:
            self._refused = None
            return None
        values, violated, refused = [], 0, False
        for i, (limit, known) in enumerate(zip(self.terms.limits, ruling.values, strict=True)):
            value = max(0, known - elapsed) if limit.flows else known
            values.append(value)
            # Somebody else may free a slot at any moment.
            if limit.policy != "in_flight" and value + limit.cost(characters) > limit.capacity:
                violated |= 1 << i
                refused = refused or limit.enforced
        return Ruling(False, violated, now, values) if refused else None

    def recall_any(self, most: int, at: int) -> Verdict | None:
        """The same for every request of at most so many characters, on any route: where only limits by the request refuse.

        What is told may be a few milliseconds old, so that to be refused again costs next to nothing; whether it still holds is
        looked at each time.
        """
        told = self._told
        if told is not None and told.at <= at < told.until and most <= told.most:
            return told.verdict
        if self.terms.tenant.routes or (self.terms.most is not None and most > self.terms.most):
            return None
        ruling = self.recall(most, at)
        if ruling is None:
            return None
        by_request, wait = 0, 0
        for i, limit in enumerate(self.terms.limits):
            if not limit.by_character:
                by_request |= ruling.violated & 1 << i
                owed = ruling.values[i] + limit.cost(most) - limit.capacity
                wait = max(wait, owed if limit.enforced and limit.flows else 0)
            elif limit.enforced and ruling.violated >> i & 1:
                return None
        refusal = verdict(self.terms, Ruling(False, by_request, ruling.now, ruling.values), most, remembered=True)
        self._told = _Told(refusal, most, at, at + min(_FRESH_US, wait))
        return refusal


def _arguments(limit: Limit) -> tuple[bytes, bytes, bytes, bytes]:
    return _LETTERS[limit.policy], repr(limit.scale).encode(), b"%d" % limit.capacity, b"1" if limit.enforced else b"0"
