"""TLS of both listeners, with real handshakes: who is let in, and files that are renewed while connections live."""

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, load_pem_private_key
from pydantic import ValidationError

from app.alive import answers
from app.edge.certificate import Certificate, CertificateFiles, CertificateUnusable
from app.settings import Settings
from tests.edge.raw import Line, connected, head
from tests.fakes.triton import FakeTriton
from tests.gateway.problems import assert_problem
from tests.gateway.process import RunningGateway, conch
from tests.gateway.tenants import Tenants
from tests.peers import Redis, eventually
from tests.triton.certificates import Authority

HANDSHAKE_SECONDS = 2.0


class Wardrobe:
    """The files that the gateway is told of, and the authorities that fill them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers, self.clients = Authority.found(folder), Authority.found(folder, "clients")
        self.put_on("api", self.servers.issue("127.0.0.1"))
        self.put_on("admin", self.servers.issue("127.0.0.1"))
        shutil.copy(self.clients.file, self.folder / "client-ca.pem")

    def put_on(self, name: str, files: tuple[Path, Path]) -> None:
        shutil.copy(files[0], self.folder / f"{name}.crt")
        shutil.copy(files[1], self.folder / f"{name}.key")

    def client(self, authority: Authority | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.servers.file)
        if authority:
            context.load_cert_chain(*authority.issue("prometheus"))
        return context

    @property
    def settings(self) -> dict[str, str]:
        at = self.folder
        return {
            "TLS_CERT_FILE": f"{at}/api.crt",
            "TLS_KEY_FILE": f"{at}/api.key",
            "ADMIN_TLS_CERT_FILE": f"{at}/admin.crt",
            "ADMIN_TLS_KEY_FILE": f"{at}/admin.key",
            "ADMIN_TLS_CLIENT_CA_FILE": f"{at}/client-ca.pem",
        }


@pytest.fixture(scope="module")
def wardrobe(tmp_path_factory: pytest.TempPathFactory) -> Wardrobe:
    return Wardrobe(tmp_path_factory.mktemp("certificates"))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def sealed(
    gateways: Callable[..., Awaitable[RunningGateway]],
    redis: Redis,
    staged_routes: Path,
    _stage: FakeTriton,
    wardrobe: Wardrobe,
) -> AsyncIterator[RunningGateway]:
    gateway = await gateways(
        tls=wardrobe.client(wardrobe.clients),
        TRITON=_stage.address,
        REDIS_URL=redis.url,
        ROUTES_FILE=str(staged_routes),
        HEADER_TIMEOUT_SECONDS=str(HANDSHAKE_SECONDS),
        **wardrobe.settings,
    )
    yield gateway
    await gateway.stop()


async def test_the_api_speaks_tls_and_nothing_else(sealed: RunningGateway) -> None:
    answer = await sealed.classify("a", model="words")
    assert answer.status_code == 200, answer.text
    async with connected(sealed.address) as line:
        await line.send(head("GET /livez"))
        assert await line.is_closed()
    assert '"level":"error"' not in sealed.log()


async def test_a_container_s_healthcheck_asks_by_tls_too(sealed: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONCH_LISTEN", f"0.0.0.0:{sealed.address.port}")
    with pytest.raises(OSError, match="closed connection"):
        await asyncio.to_thread(answers)
    monkeypatch.setenv("CONCH_TLS_CERT_FILE", "api.crt")
    assert await asyncio.to_thread(answers)
    assert await asyncio.to_thread(answers, "/readyz")
    assert not await asyncio.to_thread(answers, "/nowhere")


async def test_a_head_that_is_refused_is_answered_through_tls_too(sealed: RunningGateway, wardrobe: Wardrobe) -> None:
    reader, writer = await asyncio.open_connection(sealed.address.host, sealed.address.port, ssl=wardrobe.client())
    line = Line(reader, writer)
    await line.send(head("GET /livez", "Content-Length: 1", "Transfer-Encoding: chunked"))
    assert_problem(await line.answer(), 400, "malformed_request")
    writer.close()


async def test_who_does_not_finish_a_handshake_is_hung_up_on(sealed: RunningGateway) -> None:
    async with connected(sealed.address) as line, asyncio.timeout(HANDSHAKE_SECONDS * 4):
        assert await line.is_closed()


@pytest.mark.parametrize("stranger", ["without a certificate", "of another authority", "by TLS 1.2"])
async def test_the_admin_listener_answers_those_alone_whom_its_authority_vouches_for(
    sealed: RunningGateway, wardrobe: Wardrobe, stranger: str
) -> None:
    assert (await sealed.status())["ready"]
    known = {"without a certificate": None, "of another authority": wardrobe.servers, "by TLS 1.2": wardrobe.clients}
    context = wardrobe.client(known[stranger])
    if stranger == "by TLS 1.2":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with httpx.AsyncClient(verify=context, trust_env=False) as client:
        assert (await client.get(f"https://{sealed.address}/livez")).status_code == 200
        with pytest.raises(httpx.TransportError):
            await client.get(f"{sealed.admin}/metrics")


async def serial(sealed: RunningGateway, context: ssl.SSLContext) -> str:
    """Of the certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection(sealed.address.host, sealed.address.port, ssl=context)
    shown = writer.get_extra_info("peercert")["serialNumber"]
    writer.close()
    return str(shown)


async def test_a_renewed_certificate_is_shown_to_new_connections_and_old_ones_go_on(
    sealed: RunningGateway, wardrobe: Wardrobe
) -> None:
    context = wardrobe.client()
    first = await serial(sealed, context)
    reader, writer = await asyncio.open_connection(sealed.address.host, sealed.address.port, ssl=context)
    line = Line(reader, writer)
    await line.send(head("GET /livez"))
    assert (await line.answer()).status_code == 200

    wardrobe.put_on("api", wardrobe.servers.issue("127.0.0.1"))
    await eventually(lambda: sealed.log().count("CONCH_TLS_*_FILE: renewed") == 1)
    assert await serial(sealed, context) != first
    await line.send(head("GET /livez"))
    assert (await line.answer()).status_code == 200
    writer.close()


async def test_files_that_do_not_fit_change_nothing_and_are_told_once_until_they_do(
    sealed: RunningGateway, wardrobe: Wardrobe
) -> None:
    context, told = wardrobe.client(), "CONCH_TLS_*_FILE can't be used"
    shown, renewals = await serial(sealed, context), sealed.log().count("CONCH_TLS_*_FILE: renewed")
    certificate, key = wardrobe.servers.issue("127.0.0.1")
    shutil.copy(key, wardrobe.folder / "api.key")
    await eventually(lambda: told in sealed.log())
    assert await serial(sealed, context) == shown
    shutil.copy(certificate, wardrobe.folder / "api.crt")
    await eventually(lambda: sealed.log().count("CONCH_TLS_*_FILE: renewed") == renewals + 1)
    assert await serial(sealed, context) != shown
    assert sealed.log().count(told) == 1


async def test_the_metric_tells_when_each_certificate_ends(sealed: RunningGateway) -> None:
    files = {sample.labels["file"] for sample in await sealed.samples() if sample.name == "conch_certificate_expires_seconds"}
    assert files == {"tls_cert_file", "admin_tls_cert_file", "admin_tls_client_ca_file"}


async def test_another_authority_for_callers_is_taken_over_too(sealed: RunningGateway, wardrobe: Wardrobe) -> None:
    shutil.copy(wardrobe.servers.file, wardrobe.folder / "client-ca.pem")
    await eventually(lambda: "CONCH_ADMIN_TLS_*_FILE: renewed" in sealed.log())
    async with httpx.AsyncClient(verify=wardrobe.client(wardrobe.servers), trust_env=False) as client:
        assert (await client.get(f"{sealed.admin}/status")).status_code == 200
    async with httpx.AsyncClient(verify=wardrobe.client(wardrobe.clients), trust_env=False) as client:
        with pytest.raises(httpx.TransportError):
            await client.get(f"{sealed.admin}/status")


async def test_files_that_can_not_be_used_keep_a_gateway_from_starting(
    wardrobe: Wardrobe, tenants: Tenants, staged_routes: Path
) -> None:
    files = {**wardrobe.settings, "TLS_KEY_FILE": str(wardrobe.folder / "admin.key")}
    settings = {**files, "TENANTS_FILE": str(tenants.path), "ROUTES_FILE": str(staged_routes)}
    code, _, said = await conch("serve", **{f"CONCH_{name}": value for name, value in settings.items()})
    assert (code, "CONCH_TLS_*_FILE can't be used: KEY_VALUES_MISMATCH" in said) == (1, True), said


@pytest.mark.parametrize("content", ["", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_unusable(wardrobe: Wardrobe, tmp_path: Path, content: str) -> None:
    (tmp_path / "file.pem").write_text(content)
    with pytest.raises(CertificateUnusable, match=r"CONCH_TLS_\*_FILE can't be used"):
        Certificate(CertificateFiles("tls", tmp_path / "file.pem", wardrobe.folder / "api.key"), lambda of: None)


def test_a_key_with_a_password_is_unusable_and_nobody_is_asked_for_it(wardrobe: Wardrobe, tmp_path: Path) -> None:
    key = load_pem_private_key((wardrobe.folder / "api.key").read_bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    (tmp_path / "locked.key").write_bytes(locked)
    with pytest.raises(CertificateUnusable):
        Certificate(CertificateFiles("tls", wardrobe.folder / "api.crt", tmp_path / "locked.key"), lambda of: None)


@pytest.mark.parametrize(
    ("missing", "words"),
    {
        "TLS_KEY": "CONCH_TLS_CERT_FILE",
        "TLS_CERT": "CONCH_TLS_CERT_FILE",
        "ADMIN_TLS_KEY": "CONCH_ADMIN_TLS_CERT_FILE",
    }.items(),
)
def test_a_certificate_and_its_key_go_together(
    wardrobe: Wardrobe, monkeypatch: pytest.MonkeyPatch, missing: str, words: str
) -> None:
    for name, value in wardrobe.settings.items():
        monkeypatch.setenv(f"CONCH_{name}", "" if name == f"{missing}_FILE" else value)
    with pytest.raises(ValidationError, match=f"goes together with {words}"):
        Settings()


def test_an_authority_for_callers_needs_a_certificate_of_ours(wardrobe: Wardrobe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONCH_ADMIN_TLS_CLIENT_CA_FILE", str(wardrobe.clients.file))
    with pytest.raises(ValidationError, match="goes together with CONCH_ADMIN_TLS_CERT_FILE"):
        Settings()
