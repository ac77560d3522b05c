"""Exact limits across replicas while Redis answers, this process's share of them while it does not."""

import asyncio
import secrets
from collections.abc import Callable
from itertools import count
from time import monotonic_ns
from types import TracebackType
from typing import NamedTuple

import hiredis

from app.admission.account import Account, Script
from app.admission.headcount import Headcount
from app.admission.limiter import Verdict
from app.admission.local_limiter import LocalLimiter
from app.admission.redis_link import Mode, RedisLink, RedisTrouble
from app.admission.redis_topology import topology
from app.admission.redis_wire import RedisLost, RedisRefused, RedisSilent, RedisWire, Reply
from app.admission.ruling import Ruling, verdict
from app.admission.terms import terms_of
from app.errors import Unavailable
from app.tenancy.tenant import Quota, Tenant

_MOST_ACCOUNTS = 20_000
_FREE = Verdict(None)
_PROBE = Quota(requests_per_second=1e6, burst=1_000_000)
_OUTCOMES = {RedisLost: "lost", RedisSilent: "silent", RedisRefused: "refused"}

Asked = Callable[[str, float], None]
"""Hears of every decision that Redis was asked for: `ok`, `lost`, `silent` or `refused`, and after how many seconds."""


def _nobody(outcome: str, seconds: float) -> None:
    pass


class _Receipt(NamedTuple):
    account: Account
    characters: int
    member: bytes
    violated: int
    at: int
    """On Redis's clock."""
    since: int = 0
    """On ours."""


class RedisLimiter:
    """Enter it as a context before use. `mode`, `replicas` and the counters are for metrics."""

    def __init__(
        self,
        url: str,
        *,
        replicas: int | None = None,
        budget: float = 0.05,
        margin: float = 5.0,
        asked: Asked = _nobody,
    ) -> None:
        """Without `replicas`, Redis counts them. Raises `ValueError` where the URL is none of Redis."""
        self._asked = asked
        self._margin = margin
        self._admit, self._refund = Script.read("admit.lua"), Script.read("refund.lua")
        self._accounts: dict[str, dict[str, Account]] = {}
        self._exhausted: dict[str, Account] = {}
        self._opened = 0
        self._origin = secrets.token_hex(5).encode()
        self._redis = topology(url, probes=self._probes, budget=budget)
        self._headcount = Headcount(self._redis, self._origin, replicas)
        self._local = LocalLimiter(margin=margin)
        self._numbers = count()
        self.remembered = 0
        self.failures = 0

    @property
    def mode(self) -> Mode:
        return self._redis.mode

    @property
    def trouble(self) -> str:
        return self._redis.trouble

    @property
    def replicas(self) -> int:
        return self._headcount.replicas

    async def __aenter__(self) -> "RedisLimiter":
        await self._redis.open()
        await self._headcount.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._headcount.close()
        await self._redis.close()

    async def spend(self, tenant: Tenant, route: str, characters: int, lifetime: float) -> Verdict:
        account = self._account(tenant, route)
        account.terms.refuse_oversize(characters)
        if not account.terms.limits:
            return _FREE
        link = self._redis.link_for(account.slot)
        if link.wire is None:
            return self._without_redis(account, characters, lifetime)
        asked_at = monotonic_ns() // 1000
        remembered = account.recall(characters, asked_at)
        if remembered is not None:
            self.remembered += 1
            return verdict(account.terms, remembered, characters, remembered=True)
        try:
            decided = await self._decided(link, link.wire, account, characters, lifetime, asked_at)
        except RedisTrouble as error:
            self.failures += 1
            self._asked(_OUTCOMES[type(error)], _seconds_since(asked_at))
            link.failed(error)
            return self._without_redis(account, characters, lifetime)
        self._asked("ok", _seconds_since(asked_at))
        return decided

    def recall(self, tenant: Tenant, most: int) -> Verdict | None:
        account = self._exhausted.get(tenant.id)
        if account is None or self._redis.link_for(account.slot).wire is None:
            return None
        if account.terms.tenant is not tenant or not account.remembers:
            del self._exhausted[tenant.id]
            return None
        refused = account.recall_any(most, monotonic_ns() // 1000)
        self.remembered += refused is not None
        return refused

    async def _decided(
        self, link: RedisLink, wire: RedisWire, account: Account, characters: int, lifetime: float, asked_at: int
    ) -> Verdict:
        length = int((lifetime + self._margin) * 1e6)
        member = b"%b-%x:%d" % (self._origin, next(self._numbers), length)
        ruling = _ruling(await self._ask(wire, account, characters, length, member), account)
        link.answered()
        if not ruling.admitted:
            account.remember(ruling, asked_at)
            self._exhausted[account.terms.tenant.id] = account
            return verdict(account.terms, ruling, characters)
        receipt = _Receipt(account, characters, member, ruling.violated, ruling.now, asked_at)
        return verdict(account.terms, ruling, characters, receipt=receipt)

    def settle(self, verdict: Verdict, *, executed: bool) -> None:
        receipt = verdict.receipt
        if not isinstance(receipt, _Receipt):
            self._local.settle(verdict, executed=executed)
            return
        account = receipt.account
        link = self._redis.link_for(account.slot)
        if account.releases:
            account.terms.lasted(monotonic_ns() // 1000 - receipt.since)
        for command in account.release(receipt.member):
            link.send(command, account.slot)
        if not executed:
            self._repay(receipt, link.wire)

    async def _ask(self, wire: RedisWire, account: Account, characters: int, length: int, member: bytes) -> Reply:
        def undo(reply: Reply) -> None:
            """Nobody waits for this reply any more: what it took would be lost."""
            if isinstance(reply, list) and reply[0] == 1:
                for release in account.release(member):
                    wire.send(release)
                self._repay(_Receipt(account, characters, member, reply[1], reply[2]), wire)

        command = account.admission(characters, length, member)
        while True:
            future = wire.call(command, undo)
            try:
                return await future
            except asyncio.CancelledError:
                # The reply was there, and its waiter was cancelled before it could look.
                if future.done() and not future.cancelled() and future.exception() is None:
                    undo(future.result())
                raise
            except RedisRefused as error:
                asked, command = command, self._admit.in_full(command)
                if not str(error).startswith("NOSCRIPT") or command == asked:
                    raise

    def _repay(self, receipt: _Receipt, wire: RedisWire | None) -> None:
        now = monotonic_ns() // 1000
        for account in self._accounts.get(receipt.account.terms.tenant.id, {}).values():
            account.forget(now)
        repayment = receipt.account.repayment(receipt.characters, receipt.violated, receipt.at)
        if repayment is None or wire is None:
            return

        def landed(reply: Reply) -> None:
            if isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT"):
                wire.send(self._refund.in_full(repayment))

        wire.send(repayment, landed)

    def _without_redis(self, account: Account, characters: int, lifetime: float) -> Verdict:
        if account.closed:
            raise Unavailable("The tenant's limits can't be checked now.", retry_after=1)
        return self._local.decide(account.share(self._headcount.replicas), characters, lifetime, degraded=True)

    def _account(self, tenant: Tenant, route: str) -> Account:
        account = self._accounts.get(tenant.id, {}).get(route)
        # After a reload the tenant is another object, maybe with other limits.
        if account is None or account.terms.tenant is not tenant:
            if self._opened >= _MOST_ACCOUNTS:
                self._accounts.clear()
                self._exhausted.clear()
                self._opened = 0
            account = self._accounts.setdefault(tenant.id, {})[route] = self._open(tenant, route)
            self._opened += 1
        return account

    def _open(self, tenant: Tenant, route: str) -> Account:
        return Account.opened(terms_of(tenant, route), self._admit, self._refund)

    def _probes(self, name: str) -> tuple[bytes, bytes]:
        probe = self._open(Tenant(name, "", (), _PROBE), "")
        spending, refunding = probe.admission(0, 1000, b"probe:1000"), probe.repayment(0, 0, 0) or b""
        return self._admit.in_full(spending), self._refund.in_full(refunding)


def _seconds_since(microseconds: int) -> float:
    return monotonic_ns() / 1e9 - microseconds / 1e6


def _ruling(reply: Reply, account: Account) -> Ruling:
    if not isinstance(reply, list) or len(reply) != 3 + len(account.terms.limits):
        raise RedisRefused("not the script's reply")
    return Ruling(reply[0] == 1, reply[1], reply[2], reply[3:])
