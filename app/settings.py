"""Every setting, from the environment. `docs/settings.md` documents each; a test fails when one is missing there."""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, FilePath, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.admission.redis_address import parse_address

_REDIS = re.compile(r"(rediss?(\+(sentinel|cluster))?|unix)://(?:[^@/?]*@)?([^/?]*)")
_TRITON = re.compile(r"(dns:///[^:/\[\]\s]+|[^:/\[\]\s]+|\[[0-9A-Fa-f:.]+\]):[1-9]\d{0,4}")
_PROTOCOL_HEADER = re.compile(r"[a-z0-9._-]+=[\x21-\x7e]+")
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[a-z0-9._-]+(:[1-9][0-9]{0,4})?")
_ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_TLS = (
    *("tls_cert", "tls_key", "admin_tls_cert", "admin_tls_key", "admin_tls_client_ca"),
    *("triton_tls_ca", "triton_tls_cert", "triton_tls_key"),
)
_NO_PORT = re.compile(r":(0+|(?!\d{1,5}$)[^:\]]*)$")
_OF_THE_COMMANDS = ("CONCH_HOME", "CONCH_KEY", "CONCH_TRITON_TRACES", "CONCH_URL")
_OF_KUBERNETES = re.compile(r"CONCH(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="CONCH_", frozen=True, extra="ignore")

    listen: str = Field("127.0.0.1:8080", description="Where the API listens.")
    admin_listen: str = Field("127.0.0.1:8081", description="Where metrics and status are served; keep it private.")
    tls_cert_file: FilePath | None = Field(None, description="The API's certificate, with those that lead to its root; TLS.")
    tls_key_file: FilePath | None = Field(None, validate_default=True, description="The key of that certificate.")
    admin_tls_cert_file: FilePath | None = Field(None, description="The certificate of the admin listener; TLS.")
    admin_tls_key_file: FilePath | None = Field(None, validate_default=True, description="The key of that certificate.")
    admin_tls_client_ca_file: FilePath | None = Field(None, description="Who vouches for callers of the admin listener (mTLS).")
    tenants_file: Path = Field(Path("config/tenants.yaml"), description="The tenants: a file, or a directory of files.")
    tokens_file: Path | None = Field(None, description="Who may issue tokens (JWT); without it there are none.")
    routes_file: Path = Field(Path("config/routes.yaml"), description="The routes.")
    redis_url: str = Field("redis://127.0.0.1:6379/0", description="Redis, for limits shared by all replicas.")
    triton: Annotated[tuple[str, ...], NoDecode] = Field(
        ("127.0.0.1:8001",),
        description="Tritons' gRPC addresses, host:port or dns:///name:port, separated by commas.",
    )
    triton_tls_ca_file: FilePath | None = Field(None, description="Who vouches for Triton's certificate; switches TLS on.")
    triton_tls_cert_file: FilePath | None = Field(None, description="The certificate that the gateway shows to Triton (mTLS).")
    triton_tls_key_file: FilePath | None = Field(None, validate_default=True, description="The key of that certificate.")
    triton_tls_server_name: str = Field("", description="The name in Triton's certificate, if it is not that of its address.")
    triton_protocol_header: SecretStr = Field(
        SecretStr(""), description="name=value: opens what Triton's --grpc-restricted-protocol keeps shut."
    )
    replicas: int | Literal["auto"] = Field(
        "auto", description="How many gateways share the limits; auto is as many as Redis counted last."
    )
    redis_budget_ms: int = Field(50, ge=1, description="How long a decision may wait for Redis before it is made without.")
    max_body_bytes: int = Field(4 * 1024 * 1024, ge=1024, description="The largest body of a request.")
    body_timeout_seconds: float = Field(30.0, gt=0, description="How long a body may take to arrive.")
    body_memory_bytes: int = Field(
        256 * 1024 * 1024, ge=1024, description="How much memory bodies that are still arriving may hold; a tenant, half of it."
    )
    max_header_bytes: int = Field(
        16 * 1024, ge=1024, description="The largest head of a request: the request line and all headers."
    )
    header_timeout_seconds: float = Field(10.0, gt=0, description="How long a head may take to arrive.")
    stall_seconds: float = Field(60.0, gt=0, description="How long a caller may take none of its answer.")
    keep_alive_seconds: int = Field(75, ge=1, description="How long an idle connection stays open.")
    max_connections: int = Field(10_000, ge=1, description="How many connections may be open at once.")
    root_path: str = Field("", description="The path under which an ingress publishes the gateway, such as /conch.")
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Names that a request's Host may have, separated by commas; any, if there are none."
    )
    allowed_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Origins whose pages may call (CORS), separated by commas; * for all."
    )
    gzip_min_bytes: int = Field(8192, ge=0, description="The smallest answer that is compressed for who asks; 0 for none.")
    max_message_bytes: int = Field(64 * 1024 * 1024, ge=1024, description="The largest gRPC message to or from Triton.")
    split_parallelism: int = Field(4, ge=1, description="How many parts of one large request run at once.")
    bulk_posts: int = Field(16, ge=1, description="How many bulk posts one gateway serves at once.")
    bulk_lines: int = Field(10_000, ge=1, description="The most lines of a bulk post.")
    bulk_seconds: float = Field(300.0, gt=0, description="How long a bulk post may take, from its head to its last line.")
    drain_delay_seconds: float = Field(0.0, ge=0, description="How long to go on serving, unready, after SIGTERM.")
    drain_seconds: int = Field(20, ge=0, description="How long running requests may take to finish after that.")
    berth_wait_ms: int = Field(1000, ge=0, description="How long a request may wait for a place at its model.")
    auth_failures_per_second: float = Field(
        10.0, gt=0, description="How many failed authentications of one address get a 401; more get a 429."
    )
    trusted_proxies: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode] = Field(
        (), description="Networks of proxies whose X-Forwarded-For is believed, separated by commas."
    )
    join_traces: bool = Field(
        True, description="Whether a caller's trace is gone on with; if not, each request has one of its own, linked to it."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="The least level that is logged.")
    access_log: bool = Field(True, description="Whether each request is logged.")
    access_log_share: float = Field(1.0, ge=0, le=1, description="How much of the requests that succeed is logged.")
    metrics_tenants: int = Field(20, ge=0, description="How many tenants, the busiest, have metrics of their own.")

    @field_validator("tokens_file", *(f"{tls}_file" for tls in _TLS), mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        return value or None

    @field_validator("triton", "trusted_proxies", "allowed_hosts", "allowed_origins", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(_HOST.fullmatch, value)):
            raise ValueError("must be names or addresses without a port, separated by commas")
        return tuple(host.lower() for host in value)

    @field_validator("root_path")
    @classmethod
    def _root(cls, value: str) -> str:
        if not _ROOT_PATH.fullmatch(value):
            raise ValueError("must be a path such as /conch, without a slash at its end")
        return value

    @field_validator("allowed_origins")
    @classmethod
    def _origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(_ORIGIN.fullmatch, value)):
            raise ValueError("must be origins such as https://app.example.com, separated by commas, or *")
        return value

    @field_validator("replicas", mode="plain")
    @classmethod
    def _count(cls, value: object) -> object:
        if value == "auto":
            return value
        if not str(value).isdecimal() or int(str(value)) < 1:
            raise ValueError("must be auto, or a number from 1")
        return int(str(value))

    @field_validator("triton")
    @classmethod
    def _tritons(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or not all(map(_TRITON.fullmatch, value)):
            raise ValueError("must be host:port or dns:///name:port, separated by commas")
        return value

    @field_validator("triton_protocol_header")
    @classmethod
    def _header(cls, value: SecretStr) -> SecretStr:
        if value.get_secret_value() and not _PROTOCOL_HEADER.fullmatch(value.get_secret_value()):
            raise ValueError("must be name=value: a name of a-z 0-9 . _ - and a value of printable ASCII")
        return value

    @field_validator("tls_key_file", "admin_tls_key_file", "triton_tls_key_file")
    @classmethod
    def _paired(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        certificate = str(info.field_name).replace("_key_", "_cert_")
        if certificate in info.data and bool(value) != bool(info.data[certificate]):
            raise ValueError(f"goes together with CONCH_{certificate.upper()}")
        return value

    @field_validator("admin_tls_client_ca_file")
    @classmethod
    def _beside(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value and not info.data.get("admin_tls_cert_file"):
            raise ValueError("goes together with CONCH_ADMIN_TLS_CERT_FILE")
        return value

    @field_validator("redis_url")
    @classmethod
    def _redis(cls, value: str) -> str:
        url = _REDIS.match(value)
        if url is None or any(map(_NO_PORT.search, url[4].split(","))):
            raise ValueError(
                "must be a URL of redis://, rediss:// or unix://, of redis+sentinel:// or rediss+sentinel://, or of"
                " redis+cluster:// or rediss+cluster://"
            )
        try:
            parse_address(value)
        except OSError as error:  # a file of certificates that it names
            raise ValueError(f"a file that it names: {error.strerror}") from error
        return value

    @field_validator("listen", "admin_listen")
    @classmethod
    def _address(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            raise ValueError("must be host:port")
        return value


def strangers(variables: Iterable[str]) -> Iterator[str]:
    """A sentence on each variable that looks like a setting, and is none."""
    known = [*(f"CONCH_{name.upper()}" for name in Settings.model_fields), *_OF_THE_COMMANDS]
    for variable in sorted(variables):
        name = variable.upper()
        if name.startswith("CONCH_") and name not in known and not _OF_KUBERNETES.fullmatch(name):
            near = get_close_matches(name, known, n=1, cutoff=0)
            yield f"{variable} is not a setting, and has no effect; the nearest one is {near[0]}"


def split_address(address: str) -> tuple[str, int]:
    """Host and port of a checked `host:port`; IPv6 hosts may stand in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
