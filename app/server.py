"""One process: the API and the private listener, side by side on one event loop."""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from starlette.types import ASGIApp

from app.api.admin import admin_app
from app.edge.certificate import Certificate, CertificateFiles
from app.edge.echo import Echo
from app.edge.observe import described
from app.edge.wire import Wire, WireLimits, limited
from app.errors import Refusal
from app.house import House
from app.main import create_app
from app.report import read_gauges, status
from app.settings import Settings, split_address, strangers
from app.telemetry.exchange import Exchange
from app.telemetry.logs import AccessLog, configure_logs
from app.telemetry.metrics import Metrics

log = logging.getLogger("conch")


class AddressUnusable(ValueError):
    """Nothing can listen there; the message says why."""


class _Server(uvicorn.Server):
    """Signals are `serve`'s: uvicorn would stop at once, and raise them again at the end, so that the exit code is not 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


class _Loop(uvloop.Loop):
    """uvicorn waits a minute for a handshake, in which the connection is in no count."""

    def __init__(self, handshake_seconds: float) -> None:
        self._handshake_seconds = handshake_seconds

    async def create_server(self, *args: Any, **options: Any) -> Any:
        if options.get("ssl"):
            options["ssl_handshake_timeout"] = self._handshake_seconds
        return await super().create_server(*args, **options)


def serve(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises `TenantsInvalid`, `RoutesInvalid`, `CertificateUnusable` and `AddressUnusable` before
    anything starts.

    SIGTERM makes the gateway unready at once; it goes on serving for the drain's delay, until load balancers have noticed, then
    takes no connection more, and ends when the running requests have. A second signal ends it now.
    """
    events = configure_logs(settings.log_level)
    for sentence in strangers(os.environ):
        log.warning(sentence)
    make_room(settings.max_connections)
    house = House.build(settings)
    limits = WireLimits(
        settings.max_header_bytes,
        settings.header_timeout_seconds,
        settings.max_connections,
        settings.stall_seconds,
        frozenset(host.encode() for host in settings.allowed_hosts),
    )
    access = AccessLog(settings.log_level, settings.access_log_share, beside=events) if settings.access_log else None
    record = partial(_record, house, access)
    echo = Echo(settings.max_body_bytes, lambda: house.draining, house.tracing, record)
    tell = partial(_record_refusal, house.metrics, access)
    wire = limited(limits, tell, echo.answer)
    private_wire = limited(replace(limits, hosts=frozenset()), tell)
    api_tls = _certificate(house, "tls", settings.tls_cert_file, settings.tls_key_file)
    admin_tls = _certificate(
        house, "admin_tls", settings.admin_tls_cert_file, settings.admin_tls_key_file, settings.admin_tls_client_ca_file
    )
    house.watches["gauges"] = partial(house.metrics.watch, 1.0, partial(read_gauges, house))
    private = admin_app(house.metrics.exposition, partial(status, house), house.ready)
    public = _Server(_config(settings.listen, create_app(house, record, echo), settings, wire, api_tls))
    admin = _Server(_config(settings.admin_listen, private, settings, private_wire, admin_tls))

    async def both() -> None:
        told = _signals()
        beside = asyncio.create_task(admin.serve([private_door]))
        serving = asyncio.create_task(public.serve([public_door]))
        hearing = asyncio.create_task(told.get())
        await asyncio.wait((serving, hearing), return_when=asyncio.FIRST_COMPLETED)
        house.draining = True
        if hearing.done() and hearing.result() == signal.SIGTERM:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(settings.drain_delay_seconds):
                    await told.get()
        public.should_exit = True
        ending = asyncio.create_task(_hurried(told, public))
        await serving
        ending.cancel()
        admin.should_exit = True
        await beside

    try:
        with (
            _bound("CONCH_LISTEN", settings.listen) as public_door,
            _bound("CONCH_ADMIN_LISTEN", settings.admin_listen) as private_door,
            asyncio.Runner(loop_factory=partial(_Loop, settings.header_timeout_seconds)) as runner,
        ):
            log.info("the API listens at %s, metrics and status at %s", settings.listen, settings.admin_listen)
            runner.run(both())
    finally:
        if access is not None:
            access.flush()  # also of what the runner cancelled when it closed


_FILES = 256
"""Beside the callers' connections: peers, probes, files that are read again."""


def make_room(connections: int) -> None:
    """Each connection is an open file. Past the limit new ones are dropped without a word, files can't be read again, and a
    lost Triton is not reached any more; shells and systemd allow 1024, and as many as the hard limit to who asks.
    """
    wanted = connections + _FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < room:
        resource.setrlimit(resource.RLIMIT_NOFILE, (room, hard))
    if room < wanted:
        few = room - _FILES
        log.warning("of CONCH_MAX_CONNECTIONS=%d there is room for %d: raise the limit of open files", connections, few)


def _signals() -> "asyncio.Queue[signal.Signals]":
    told: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.put_nowait, number)
    return told


async def _hurried(told: "asyncio.Queue[signal.Signals]", server: uvicorn.Server) -> None:
    await told.get()
    server.force_exit = True


def _record(house: House, access: AccessLog | None, exchange: Exchange, method: str, status: int) -> None:
    house.metrics.record(exchange, status)
    if access is not None:
        access.record(exchange, method, status)
    if exchange.span is not None and exchange.span.sampled:
        house.tracing.end(described(exchange.span, method, exchange, status))


def _record_refusal(metrics: Metrics, access: AccessLog | None, request_id: str, refusal: Refusal) -> None:
    """What is refused before it is a request leaves a line and a count like everything else."""
    exchange = Exchange(request_id, code=refusal.code)
    metrics.requests.labels(exchange.route, str(refusal.status), refusal.code).inc()
    if access is not None:
        access.record(exchange, "", refusal.status)


def _certificate(
    house: House, name: str, certificate: Path | None, key: Path | None, clients: Path | None = None
) -> Certificate | None:
    if certificate is None or key is None:
        return None
    renewed = Certificate(CertificateFiles(name, certificate, key, clients), house.metrics.show_certificates)
    house.watches[f"certificate of {name}"] = renewed.watch
    return renewed


def _bound(setting: str, address: str) -> socket.socket:
    """Ours from now on, and nobody else's; who calls before everything stands waits for it."""
    host, port = split_address(address)
    door = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind((host, port))
        door.listen(2048)
    except OSError as error:
        door.close()
        raise AddressUnusable(f"{setting}: nothing can listen at {address}: {error.strerror}") from error
    return door


def _config(
    address: str, app: ASGIApp, settings: Settings, wire: type[Wire], certificate: Certificate | None
) -> uvicorn.Config:
    host, port = split_address(address)
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        loop="uvloop",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=settings.drain_seconds,
        http=wire,
        ssl_context_factory=(lambda config, default: certificate.context()) if certificate else None,
    )
