"""Redis behind TLS: one server, a cluster, and a master with Sentinels, each found by the doors before it."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from app.admission.redis_limiter import RedisLimiter
from app.local.address import Address
from app.local.watchdog import Watchdog
from app.tenancy.tenant import Quota, Tenant
from tests.admission.redis_server import RedisServer
from tests.fakes.front import Front, fronted, tls_server
from tests.redis_sets import redis_cluster, redis_sentinels
from tests.triton.certificates import Authority

Make = Callable[..., Tenant]
Until = Callable[[Callable[[], object]], Awaitable[None]]
PATIENT = 0.5


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """It vouches for this machine, by its address or its name, for another, and for us; a stranger would vouch for anybody."""
    authority = Authority.found(tmp_path_factory.mktemp("authority"))
    for name in ("127.0.0.1", "localhost", "other.example", "conch"):
        authority.issue(name)
    Authority.found(authority.folder, "stranger")
    return authority


@pytest_asyncio.fixture(loop_scope="session")
async def door(server: RedisServer, authority: Authority) -> AsyncIterator[Front]:
    """Before the server; who comes in must show a certificate."""
    known = tls_server(files(authority, "127.0.0.1"), clients=authority.file)
    async with fronted(Address("127.0.0.1", server.port), known) as front:
        yield front


def files(authority: Authority, name: str) -> tuple[Path, Path]:
    return authority.folder / f"{name}.pem", authority.folder / f"{name}.key"


OURS = "ssl_certfile={folder}/conch.pem&ssl_keyfile={folder}/conch.key"
CA = "ssl_ca_certs={folder}/ca.pem"
TAKEN = [f"{CA}&{OURS}", f"ssl_cert_reqs=none&{OURS}"]
REFUSED = {
    "an authority that does not vouch for it": (
        f"ssl_ca_certs={{folder}}/stranger.pem&{OURS}",
        "the connection did not open: its certificate is not trusted: ",
    ),
    "no authority but those of the system": (OURS, "the connection did not open: its certificate is not trusted: "),
    "no certificate of our own": (CA, "the connection broke: "),
}


@pytest.mark.parametrize("query", TAKEN)
async def test_a_redis_with_tls_decides_exactly(door: Front, authority: Authority, tenant: Make, query: str) -> None:
    url = f"rediss://{door.address}?{query.format(folder=authority.folder)}"
    async with RedisLimiter(url, budget=PATIENT) as a, RedisLimiter(url, budget=PATIENT) as b:
        verdicts = [await limiter.spend(tenant(Quota(0.001, 3)), "x", 1, 2.0) for limiter in (a, b, a, b)]
        assert [verdict.refusal is None for verdict in verdicts] == [True, True, True, False]
        assert not any(verdict.degraded for verdict in verdicts)
    assert (door.secure, door.plain) == (2, 0)


@pytest.mark.parametrize(("query", "words"), REFUSED.values(), ids=REFUSED)
async def test_a_redis_that_can_not_be_trusted_is_not_asked_and_the_log_says_why(
    door: Front, authority: Authority, tenant: Make, query: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"rediss://:c4nary@{door.address}?{query.format(folder=authority.folder)}"
    async with RedisLimiter(url, budget=PATIENT) as limiter:
        assert limiter.mode == "degraded"
        assert (await limiter.spend(tenant(Quota(1, 1)), "x", 1, 2.0)).degraded
    assert f"limits are degraded, Redis at {door.address} can't decide: " in caplog.text
    assert words in caplog.text
    assert "c4nary" not in caplog.text


async def test_a_certificate_for_another_name_is_refused_unless_names_do_not_count(
    shared_server: RedisServer, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with fronted(Address("127.0.0.1", shared_server.port), tls_server(files(authority, "other.example"))) as door:
        url = f"rediss://{door.address}?{CA.format(folder=authority.folder)}"
        async with RedisLimiter(url, budget=PATIENT) as limiter:
            assert limiter.mode == "degraded"
        assert "certificate is not valid for '127.0.0.1'" in caplog.text
        async with RedisLimiter(f"{url}&ssl_check_hostname=false", budget=PATIENT) as limiter:
            assert limiter.mode == "exact"


@pytest.mark.parametrize(("scheme", "words"), [("rediss", "is TLS spoken there?"), ("redis", "the connection broke")])
async def test_tls_where_there_is_none_and_none_where_there_is_are_told(
    shared_server: RedisServer, authority: Authority, scheme: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    context = tls_server(files(authority, "127.0.0.1"))
    async with await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context) as strict:
        port = shared_server.port if scheme == "rediss" else strict.sockets[0].getsockname()[1]
        async with RedisLimiter(f"{scheme}://127.0.0.1:{port}", budget=PATIENT) as limiter:
            assert limiter.mode == "degraded"
    assert words in caplog.text


async def test_certificates_are_read_again_when_they_were_renewed(
    door: Front, authority: Authority, until: Until, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.pem"
    shutil.copy(authority.folder / "stranger.pem", ca)
    url = f"rediss://{door.address}?ssl_ca_certs={ca}&{OURS.format(folder=authority.folder)}"
    async with RedisLimiter(url, budget=PATIENT) as limiter:
        assert limiter.mode == "degraded"
        ca.unlink()
        await asyncio.sleep(0.1)  # a file that is away for a moment ends nothing
        shutil.copy(authority.file, ca)
        await until(lambda: limiter.mode == "exact")


async def test_the_nodes_of_a_cluster_are_found_and_asked_by_tls_alone(
    authority: Authority, tenant: Make, watchdog: Watchdog, tmp_path: Path
) -> None:
    context = tls_server(files(authority, "localhost"))
    async with redis_cluster(tmp_path, watchdog, tls=context, replicas=False) as cluster:
        url = f"{cluster.url}?{CA.format(folder=authority.folder)}"
        async with RedisLimiter(url, budget=PATIENT) as limiter:
            assert limiter.mode == "exact"
            for number in range(20):
                verdicts = [await limiter.spend(tenant(Quota(0.001, 1), name=f"t-{number}"), "x", 1, 2.0) for _ in range(2)]
                assert [(verdict.refusal is None, verdict.degraded) for verdict in verdicts] == [(True, False), (False, False)]
        fronts = [server.front for server in cluster.servers if server.front]
        assert [front.plain for front in fronts] == [0, 0, 0]
        assert all(front.secure for front in fronts)
        async with RedisLimiter(cluster.url, budget=PATIENT) as limiter:
            assert limiter.mode == "degraded"


async def test_sentinels_and_the_master_that_they_name_are_asked_by_tls_and_must_have_these_names_in_their_certificates(
    authority: Authority, tenant: Make, watchdog: Watchdog, tmp_path: Path, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    context, other = tls_server(files(authority, "localhost")), tls_server(files(authority, "127.0.0.1"))
    async with redis_sentinels(tmp_path, watchdog, tls=context) as sentinels:
        master, replica = sentinels.servers
        assert master.front is not None
        assert replica.front is not None
        url = f"{sentinels.url}&{CA.format(folder=authority.folder)}"
        async with RedisLimiter(url, budget=PATIENT) as limiter:
            assert not (await limiter.spend(tenant(Quota(0.001, 3)), "x", 1, 2.0)).degraded
            assert (master.front.secure, replica.front.secure) == (1, 0)
            replica.front.context = other
            await master.peer.kill()
            await until(lambda: limiter.mode == "degraded")
            await until(lambda: "certificate is not valid for 'localhost'" in limiter.trouble)
            replica.front.context = context
            await until(lambda: limiter.mode == "exact")
            assert limiter.trouble == ""
            assert not (await limiter.spend(tenant(Quota(0.001, 3)), "x", 1, 2.0)).degraded
        async with RedisLimiter(sentinels.url, budget=PATIENT) as limiter:
            assert limiter.mode == "degraded"
    assert "Sentinel at localhost" in caplog.text
    assert "its certificate is not trusted" in caplog.text
