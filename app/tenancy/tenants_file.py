"""`tenants.yaml`: its format, and every way it can be wrong, told by file, line and field."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from app.tenancy.tenant import OnRedisLoss
from app.tenancy.yaml_document import YamlDocument, YamlInvalid

Kind = Literal["requests", "characters", "in_flight", "daily"]
KINDS: tuple[Kind, ...] = ("requests", "characters", "in_flight", "daily")

Name = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$")]
Text = Annotated[str, Field(min_length=1, max_length=200)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Scope = Literal["infer", "admin"]
Rate = Annotated[float, Field(strict=True, gt=0, le=1e12, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, ge=1, le=10**12)]
Shape = TypeVar("Shape", bound=BaseModel)
Priority = Annotated[int, Field(strict=True, ge=1, le=100)]


def _each_kind(value: object) -> object:
    return dict.fromkeys(KINDS, value) if isinstance(value, bool) else value


def _give_way(value: object) -> object:
    """A turn of Python for each tenant: only there can another thread get the interpreter while thousands are validated."""
    return value


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LimitsEntry(_Entry):
    requests_per_second: Rate | None = None
    burst: Count | None = None
    characters_per_minute: Rate | None = None
    characters_burst: Count | None = None
    in_flight: Count | None = None
    characters_per_day: Count | None = None
    on_redis_loss: OnRedisLoss = "local"
    enforce: Annotated[dict[Kind, bool], BeforeValidator(_each_kind)] = {}


class PlanEntry(LimitsEntry):
    priority: Priority = 2
    routes: dict[Text, LimitsEntry] = {}


class KeyEntry(_Entry):
    id: Name
    sha256: Digest
    scopes: list[Scope] | None = None
    not_before: AwareDatetime | None = None
    expires_at: AwareDatetime | None = None


class TenantEntry(_Entry):
    plan: Text
    models: list[Text]
    scopes: list[Scope] = ["infer"]
    keys: list[KeyEntry] = []
    priority: Priority | None = None
    limits: LimitsEntry = LimitsEntry()
    routes: dict[Text, LimitsEntry] = {}


class TenantsEntry(_Entry):
    plans: dict[Text, PlanEntry] = {}
    tenants: dict[Name, Annotated[TenantEntry, BeforeValidator(_give_way)]] = {}


@dataclass(frozen=True, slots=True)
class Fault:
    """`line` counts from 1; 0 where no line is to blame."""

    file: str
    line: int
    field: str
    sentence: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        told = ": ".join(part for part in (place, self.field, self.sentence) if part)
        return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in told)  # in one line, whatever a name is


class TenantsInvalid(ValueError):
    """A file that can't be used, with all that is wrong with it."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))


@dataclass(frozen=True, slots=True)
class TenantsFile:
    """One file, read and checked by itself."""

    file: str
    document: YamlDocument
    entry: TenantsEntry

    def fault(self, at: tuple[int | str, ...], sentence: str) -> Fault:
        return Fault(self.file, self.document.line(at), _dotted(at), sentence)


def read_tenants_file(path: Path) -> TenantsFile:
    """Raises `TenantsInvalid` with every fault that can be seen in this file alone."""
    return TenantsFile(str(path), *read_entry(path, TenantsEntry, TenantEntry, PlanEntry, KeyEntry))


def read_entry(path: Path, shape: type[Shape], *parts: type[BaseModel]) -> tuple[YamlDocument, Shape]:
    """A file that must have this shape, which is made of these parts; raises `TenantsInvalid`."""
    file = str(path)
    document = _document(file, path)
    try:
        return document, shape.model_validate(document.value)
    except ValidationError as error:
        entries: tuple[type[BaseModel], ...] = (shape, *parts)
        known = [field for entry in entries for field in entry.model_fields]
        raise TenantsInvalid(_faults(file, document, known, error.errors(include_url=False, include_input=False))) from None


def _document(file: str, path: Path) -> YamlDocument:
    try:
        document = YamlDocument(path.read_bytes())
    except OSError as error:
        raise TenantsInvalid([Fault(file, 0, "", f"can't be read: {error.strerror}")]) from None
    except YamlInvalid as error:
        raise TenantsInvalid([Fault(file, error.line, "", f"is not YAML: {error.sentence}")]) from None
    # An editor truncates a file before it writes it: were nothing the same as no tenants, that would lock everybody out.
    if document.value is None:
        raise TenantsInvalid([Fault(file, 0, "", "the file is empty")])
    return document


def _faults(file: str, document: YamlDocument, known: list[str], errors: Iterable[ErrorDetails]) -> Iterator[Fault]:
    for error in errors:
        at = tuple(part for part in error["loc"] if part != "[key]")
        yield Fault(file, document.line(at), _dotted(at), _sentence(error, known))


_OWN_WORDS = {
    "sha256": "must be the SHA-256 of the whole key in lower-case hex (64 digits), never the key itself",
    "[key]": "a name is 1 to 64 lower-case letters, digits and hyphens",
    "id": "a key's id is 1 to 64 lower-case letters, digits and hyphens",
}


def _sentence(error: ErrorDetails, known: list[str]) -> str:
    last = str(error["loc"][-1]) if error["loc"] else ""
    match error["type"]:
        case "extra_forbidden":
            near = get_close_matches(last, known, n=1)
            return "is not a field known here" + (f"; did you mean {near[0]}?" if near else "")
        case "missing":
            return "is missing"
        case "timezone_aware":
            return "needs a time zone, such as 2027-01-01T00:00:00Z"
        case "string_pattern_mismatch" if last in _OWN_WORDS:
            return _OWN_WORDS[last]
        case _:
            message = re.sub(r"^(Input|Value error,) ", "", error["msg"])
            return message.replace("valid dictionary", "mapping").replace("a valid ", "a ")


def _dotted(at: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in at).removeprefix(".")
