"""Sets of real Redis servers on loopback, some of which a test may kill: a cluster of 3 + 3, and a master with Sentinels."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from ssl import SSLContext
from typing import Any

import redis.asyncio as client
from redis.exceptions import ResponseError

from app.local.address import Address
from app.local.redis import answers, redis
from app.local.watchdog import Watchdog
from tests.fakes.front import Front, fronted
from tests.peers import Peer

PASSWORD, SENTINELS_PASSWORD = "c4nary-of-servers", "c4nary-of-sentinels"


@dataclass(frozen=True, slots=True)
class Server:
    """`front` is the door with TLS before it, if there is one; all the others know it by that."""

    address: Address
    peer: Peer
    password: str = PASSWORD
    front: Front | None = None

    @property
    def public(self) -> Address:
        return self.front.address if self.front else self.address

    @classmethod
    async def start(
        cls, stack: AsyncExitStack, folder: Path, watchdog: Watchdog, *options: str, tls: SSLContext | None = None
    ) -> "Server":
        address = Address.free()
        front = await stack.enter_async_context(fronted(address, tls)) if tls else None
        locked = ("--requirepass", PASSWORD, "--masterauth", PASSWORD)
        name = "cluster" if "--cluster-enabled" in options else "replica"
        called = (f"--{name}-announce-port", str(front.address.port)) if front else ()
        part = redis(address, folder)
        command = (*part.command, *locked, *options, *called)
        peer = Peer(replace(part, command=command), folder / f"{address.port}.log", watchdog)
        await peer.start()
        stack.push_async_callback(peer.kill)
        return cls(address, peer, front=front)

    async def ask(self, *words: Any) -> Any:
        async with self._client() as connection:
            return await connection.execute_command(*words)  # type: ignore[no-untyped-call]

    async def immortal(self) -> list[str]:
        """The limiter's keys that would never expire."""
        async with self._client() as connection:
            with suppress(ResponseError):
                await connection.execute_command("READONLY")  # type: ignore[no-untyped-call]  # a replica in a cluster
            keys = await connection.keys("conch:*")
            return [str(key) for key in keys if await connection.ttl(key) == -1]

    def _client(self) -> "client.Redis":
        return client.Redis(
            host=self.address.host,
            port=self.address.port,
            password=self.password,
            decode_responses=True,
            single_connection_client=True,
        )


@dataclass(frozen=True, slots=True)
class RedisSet:
    """`servers` begin with the masters."""

    url: str
    servers: Sequence[Server]

    async def owner(self, tag: str) -> Server:
        """Of a cluster: the master of this tag's slot, as any that lives sees it."""
        for server in self.servers:
            if await answers(server.address):
                slot = await server.ask("CLUSTER", "KEYSLOT", f"{{{tag}}}")
                for first, last, (_, port, *_), *_ in await server.ask("CLUSTER", "SLOTS"):
                    if first <= slot <= last:
                        return next(server for server in self.servers if server.public.port == port)
        raise AssertionError("no one owns it")

    async def immortal(self) -> list[str]:
        living = [server for server in self.servers if await answers(server.address)]
        return [key for server in living for key in await server.immortal()]


@asynccontextmanager
async def redis_cluster(
    folder: Path, watchdog: Watchdog, *, tls: SSLContext | None = None, replicas: bool = True
) -> AsyncIterator[RedisSet]:
    """With `tls` its servers are known by doors with TLS before them, and by the name localhost."""
    async with AsyncExitStack() as stack:
        servers = []
        for name in "abcdef" if replicas else "abc":
            place = folder / name
            place.mkdir()
            bus = Address.free().port
            options = f"--cluster-enabled yes --cluster-port {bus} --cluster-node-timeout 1000 --repl-diskless-sync-delay 0"
            named = " --cluster-announce-hostname localhost --cluster-preferred-endpoint-type hostname" if tls else ""
            words = f"{options} --cluster-require-full-coverage no{named}".split()
            servers.append((await Server.start(stack, place, watchdog, *words, tls=tls), bus))
        masters = [server for server, _ in servers[:3]]
        for at, (server, _) in enumerate(servers):
            await server.ask("CLUSTER", "SET-CONFIG-EPOCH", at + 1)
            for other, bus in servers[:at]:
                await server.ask("CLUSTER", "MEET", other.address.host, other.address.port, bus)
        for master, (first, last) in zip(masters, ((0, 5460), (5461, 10922), (10923, 16383)), strict=True):
            await master.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
        await _until_all_know_all([server for server, _ in servers])
        for master, (replica, _) in zip(masters, servers[3:], strict=False):
            await replica.ask("CLUSTER", "REPLICATE", await master.ask("CLUSTER", "MYID"))
        for replica, _ in servers[3:]:
            await _until_in_step(replica)
        for server, _ in servers:
            while "cluster_state:ok" not in str(await server.ask("CLUSTER", "INFO")):
                await asyncio.sleep(0.05)
        seeds = ",".join(f"{'localhost' if tls else server.address.host}:{server.public.port}" for server in reversed(masters))
        scheme = "rediss" if tls else "redis"
        yield RedisSet(f"{scheme}+cluster://:{PASSWORD}@{seeds}", [server for server, _ in servers])


@asynccontextmanager
async def redis_sentinels(folder: Path, watchdog: Watchdog, *, tls: SSLContext | None = None) -> AsyncIterator[RedisSet]:
    """One master, one replica, three Sentinels. With `tls` they are known by doors with TLS before them, and by the name
    localhost.
    """
    async with AsyncExitStack() as stack:
        at_once = ("--repl-diskless-sync-delay", "0", *(("--replica-announce-ip", "localhost") if tls else ()))
        master = await Server.start(stack, folder, watchdog, *at_once, tls=tls)
        host = "localhost" if tls else master.public.host
        follow = ("--replicaof", f"{host} {master.public.port}")
        replica = await Server.start(stack, folder, watchdog, *at_once, *follow, tls=tls)
        await _until_in_step(replica)
        sentinels = [await _sentinel(stack, folder, watchdog, f"{host} {master.public.port}", tls) for _ in range(3)]
        for sentinel in sentinels:
            while len(await sentinel.ask("SENTINEL", "SENTINELS", "main")) < 2:
                await asyncio.sleep(0.05)
            while not await sentinel.ask("SENTINEL", "REPLICAS", "main"):
                await asyncio.sleep(0.05)
        hosts = ",".join(f"{host}:{sentinel.public.port}" for sentinel in sentinels)
        scheme = "rediss" if tls else "redis"
        url = f"{scheme}+sentinel://:{PASSWORD}@{hosts}/main/0?sentinel_password={SENTINELS_PASSWORD}"
        yield RedisSet(url, [master, replica])


async def _sentinel(stack: AsyncExitStack, folder: Path, watchdog: Watchdog, master: str, tls: SSLContext | None) -> Server:
    address = Address.free()
    front = await stack.enter_async_context(fronted(address, tls)) if tls else None
    file = folder / f"sentinel-{address.port}.conf"
    named = "sentinel resolve-hostnames yes\nsentinel announce-hostnames yes\n" if tls else ""
    file.write_text(
        f"port {address.port}\nbind 127.0.0.1\ndir {folder}\n{named}"
        f"sentinel monitor main {master} 2\n"
        f"sentinel auth-pass main {PASSWORD}\nrequirepass {SENTINELS_PASSWORD}\nsentinel sentinel-pass {SENTINELS_PASSWORD}\n"
        "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n"
    )
    part = redis(address, folder, "sentinel")
    peer = Peer(replace(part, command=(part.command[0], str(file), "--sentinel")), folder / f"{address.port}.log", watchdog)
    await peer.start()
    stack.push_async_callback(peer.kill)
    return Server(address, peer, SENTINELS_PASSWORD, front)


async def _until_all_know_all(servers: Sequence[Server]) -> None:
    for server in servers:
        while str(await server.ask("CLUSTER", "NODES")).count("connected") < len(servers):
            await asyncio.sleep(0.05)


async def _until_in_step(replica: Server) -> None:
    while "master_link_status:up" not in str(await replica.ask("INFO", "replication")).replace("'", "").replace(" ", ""):
        await asyncio.sleep(0.05)
