"""`tenants.yaml`, read and put together: who there is, and which key is whose."""

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from app.tenancy.tenant import Principal, Quota, Tenant
from app.tenancy.tenants_file import (
    KINDS,
    Fault,
    LimitsEntry,
    PlanEntry,
    TenantEntry,
    TenantsFile,
    TenantsInvalid,
    read_tenants_file,
)

Place = tuple[int | str, ...]

_PACES = (("burst", "requests_per_second"), ("characters_burst", "characters_per_minute"))
_LONGEST_FILL = 31 * 86_400


@dataclass(frozen=True, slots=True)
class Credential:
    """A key as the directory keeps it; times are seconds since 1970."""

    digest: bytes
    principal: Principal
    not_before: float
    expires_at: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    tenants: Mapping[str, Tenant]
    credentials: Mapping[bytes, Credential]

    def __len__(self) -> int:
        return len(self.tenants)


def load(path: Path) -> Snapshot:
    """Reads a file, or every `*.yaml` and `*.yml` of a directory as if they were one. Raises `TenantsInvalid`."""
    with _uncollected():
        return _Draft(_read(path)).snapshot()


def _read(path: Path) -> list[TenantsFile]:
    files: list[TenantsFile] = []
    faults: list[Fault] = []
    for file in tenants_files(path):
        try:
            files.append(read_tenants_file(file))
        except TenantsInvalid as error:
            faults += error.faults
    if not files and not faults:
        faults.append(Fault(str(path), 0, "", "there is no such file, and no *.yaml in it"))
    if faults:
        raise TenantsInvalid(faults)
    return files


@contextmanager
def _uncollected() -> Iterator[None]:
    """The collector would walk all that is being made, again and again, and hold every thread up: 200 ms for 10,000 tenants."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Draft:
    """Files put together, and what is wrong only between them."""

    def __init__(self, files: Iterable[TenantsFile]) -> None:
        self._files = files
        self._faults: list[Fault] = []
        self._plans: dict[str, PlanEntry] = {}
        self._tenants: dict[str, Tenant] = {}
        self._credentials: dict[bytes, Credential] = {}
        self._quotas: dict[Quota, Quota] = {}

    def snapshot(self) -> Snapshot:
        for file in self._files:
            for name, plan in file.entry.plans.items():
                self._add_plan(file, name, plan)
        for file in self._files:
            for name, entry in file.entry.tenants.items():
                self._add_tenant(file, name, entry)
        if self._faults:
            raise TenantsInvalid(self._faults)
        return Snapshot(MappingProxyType(self._tenants), MappingProxyType(self._credentials))

    def _fault(self, file: TenantsFile, at: Place, sentence: str) -> None:
        self._faults.append(file.fault(at, sentence))

    def _add_plan(self, file: TenantsFile, name: str, plan: PlanEntry) -> None:
        if name in self._plans:
            self._fault(file, ("plans", name), "another file has a plan of this name")
        self._plans[name] = plan
        self._quota(file, ("plans", name), plan)
        for route, limits in plan.routes.items():
            self._quota(file, ("plans", name, "routes", route), limits)

    def _add_tenant(self, file: TenantsFile, name: str, entry: TenantEntry) -> None:
        at = ("tenants", name)
        plan = self._plans.get(entry.plan)
        if plan is None:
            self._fault(file, (*at, "plan"), "there is no such plan")
            return
        if name in self._tenants:
            self._fault(file, at, "another file has a tenant of this name")
        routes = {
            route: self._quota(file, (*at, "routes", route), plan.routes.get(route), entry.routes.get(route))
            for route in {**plan.routes, **entry.routes}
        }
        quota = self._quota(file, (*at, "limits"), plan, entry.limits)
        priority = plan.priority if entry.priority is None else entry.priority
        tenant = Tenant(name, entry.plan, tuple(entry.models), quota, routes, priority, frozenset(entry.scopes))
        self._tenants[name] = tenant
        self._add_keys(file, tenant, entry)

    def _add_keys(self, file: TenantsFile, tenant: Tenant, entry: TenantEntry) -> None:
        ids = set()
        for index, key in enumerate(entry.keys):
            at = ("tenants", tenant.id, "keys", index)
            scopes = frozenset(entry.scopes if key.scopes is None else key.scopes)
            if key.id in ids:
                self._fault(file, (*at, "id"), "another key of this tenant has this id")
            if not scopes <= set(entry.scopes):
                self._fault(file, (*at, "scopes"), "a key can't have a scope that its tenant lacks")
            if bytes.fromhex(key.sha256) in self._credentials:
                self._fault(file, (*at, "sha256"), "this key is there twice")
            ids.add(key.id)
            credential = Credential(
                digest=bytes.fromhex(key.sha256),
                principal=Principal(tenant, key.id, scopes),
                not_before=key.not_before.timestamp() if key.not_before else float("-inf"),
                expires_at=key.expires_at.timestamp() if key.expires_at else float("inf"),
            )
            self._credentials[credential.digest] = credential

    def _quota(self, file: TenantsFile, at: Place, *layers: LimitsEntry | None) -> Quota:
        """Later layers over earlier ones, field by field: an explicit null takes a limit away."""
        fields: dict[str, object] = {}
        for layer in filter(None, layers):
            fields |= {name: getattr(layer, name) for name in LimitsEntry.model_fields if name in layer.model_fields_set}
        enforce = fields.pop("enforce", {})
        shadow = frozenset(kind for kind in KINDS if isinstance(enforce, dict) and not enforce.get(kind, True))
        for burst, rate in _PACES:
            if rate in fields and fields[rate] is None:
                fields.pop(burst, None)
        quota = Quota(**fields, shadow=shadow)  # type: ignore[arg-type]
        if quota not in self._quotas:
            for field, sentence in _odd(quota):
                self._fault(file, (*at, field), sentence)
        return self._quotas.setdefault(quota, quota)


def _odd(quota: Quota) -> Iterator[tuple[str, str]]:
    """What is right field by field, and wrong together."""
    for (field, pace), seconds in zip(_PACES, (1, 60), strict=True):
        burst, rate = getattr(quota, field), getattr(quota, pace)
        if rate is None and burst is not None:
            yield field, f"means nothing without {pace}"
        elif rate is not None and (burst or max(1, rate)) / rate * seconds > _LONGEST_FILL:
            yield pace, f"is so little that {field} would take more than 31 days to fill up"


def tenants_files(path: Path) -> list[Path]:
    try:
        if not path.is_dir():
            return [path] if path.exists() else []
        # Kubernetes mounts the real files in hidden directories beside the links to them.
        return sorted(file for file in path.iterdir() if file.suffix in {".yaml", ".yml"} and not file.name.startswith("."))
    except OSError:
        return []
