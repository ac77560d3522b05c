"""Sets of real Redis servers on loopback, some of which a test may kill: a cluster of 3 + 3, and a master with Sentinels."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import redis.asyncio as client
from redis.exceptions import ResponseError

from app.local.address import Address
from app.local.redis import answers, redis
from app.local.watchdog import Watchdog
from tests.peers import Peer

PASSWORD, SENTINELS_PASSWORD = "c4nary-of-servers", "c4nary-of-sentinels"


@dataclass(frozen=True, slots=True)
class Server:
    address: Address
    peer: Peer
    password: str = PASSWORD

    @classmethod
    async def start(cls, stack: AsyncExitStack, folder: Path, watchdog: Watchdog, *options: str) -> "Server":
        address = Address.free()
        part = redis(address, folder)
        locked = ("--requirepass", PASSWORD, "--masterauth", PASSWORD)
        peer = Peer(replace(part, command=(*part.command, *locked, *options)), folder / f"{address.port}.log", watchdog)
        await peer.start()
        stack.push_async_callback(peer.kill)
        return cls(address, peer)

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
                        return next(server for server in self.servers if server.address.port == port)
        raise AssertionError("no one owns it")

    async def immortal(self) -> list[str]:
        living = [server for server in self.servers if await answers(server.address)]
        return [key for server in living for key in await server.immortal()]


@asynccontextmanager
async def redis_cluster(folder: Path, watchdog: Watchdog) -> AsyncIterator[RedisSet]:
    async with AsyncExitStack() as stack:
        servers = []
        for name in "abcdef":
            place = folder / name
            place.mkdir()
            bus = Address.free().port
            options = f"--cluster-enabled yes --cluster-port {bus} --cluster-node-timeout 1000 --repl-diskless-sync-delay 0"
            servers.append(
                (await Server.start(stack, place, watchdog, *f"{options} --cluster-require-full-coverage no".split()), bus)
            )
        masters = [server for server, _ in servers[:3]]
        for at, (server, _) in enumerate(servers):
            await server.ask("CLUSTER", "SET-CONFIG-EPOCH", at + 1)
            for other, bus in servers[:at]:
                await server.ask("CLUSTER", "MEET", other.address.host, other.address.port, bus)
        for master, (first, last) in zip(masters, ((0, 5460), (5461, 10922), (10923, 16383)), strict=True):
            await master.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
        await _until_all_know_all([server for server, _ in servers])
        for master, (replica, _) in zip(masters, servers[3:], strict=True):
            await replica.ask("CLUSTER", "REPLICATE", await master.ask("CLUSTER", "MYID"))
        for replica, _ in servers[3:]:
            await _until_in_step(replica)
        for server, _ in servers:
            while "cluster_state:ok" not in str(await server.ask("CLUSTER", "INFO")):
                await asyncio.sleep(0.05)
        seeds = ",".join(str(server.address) for server in reversed(masters))
        yield RedisSet(f"redis+cluster://:{PASSWORD}@{seeds}", [server for server, _ in servers])


@asynccontextmanager
async def redis_sentinels(folder: Path, watchdog: Watchdog) -> AsyncIterator[RedisSet]:
    """One master, one replica, three Sentinels."""
    async with AsyncExitStack() as stack:
        at_once = ("--repl-diskless-sync-delay", "0")
        master = await Server.start(stack, folder, watchdog, *at_once)
        follow = ("--replicaof", f"{master.address.host} {master.address.port}")
        replica = await Server.start(stack, folder, watchdog, *at_once, *follow)
        await _until_in_step(replica)
        sentinels = [await _sentinel(stack, folder, watchdog, master.address) for _ in range(3)]
        for sentinel in sentinels:
            while len(await sentinel.ask("SENTINEL", "SENTINELS", "main")) < 2:
                await asyncio.sleep(0.05)
            while not await sentinel.ask("SENTINEL", "REPLICAS", "main"):
                await asyncio.sleep(0.05)
        hosts = ",".join(str(sentinel.address) for sentinel in sentinels)
        yield RedisSet(f"redis+sentinel://:{PASSWORD}@{hosts}/main/0?sentinel_password={SENTINELS_PASSWORD}", [master, replica])


async def _sentinel(stack: AsyncExitStack, folder: Path, watchdog: Watchdog, master: Address) -> Server:
    address = Address.free()
    file = folder / f"sentinel-{address.port}.conf"
    file.write_text(
        f"port {address.port}\nbind 127.0.0.1\ndir {folder}\n"
        f"sentinel monitor main {master.host} {master.port} 2\n"
        f"sentinel auth-pass main {PASSWORD}\nrequirepass {SENTINELS_PASSWORD}\nsentinel sentinel-pass {SENTINELS_PASSWORD}\n"
        "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n"
    )
    part = redis(address, folder, "sentinel")
    peer = Peer(replace(part, command=(part.command[0], str(file), "--sentinel")), folder / f"{address.port}.log", watchdog)
    await peer.start()
    stack.push_async_callback(peer.kill)
    return Server(address, peer, SENTINELS_PASSWORD)


async def _until_all_know_all(servers: Sequence[Server]) -> None:
    for server in servers:
        while str(await server.ask("CLUSTER", "NODES")).count("connected") < len(servers):
            await asyncio.sleep(0.05)


async def _until_in_step(replica: Server) -> None:
    while "master_link_status:up" not in str(await replica.ask("INFO", "replication")).replace("'", "").replace(" ", ""):
        await asyncio.sleep(0.05)
