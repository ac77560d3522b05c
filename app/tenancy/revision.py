"""A key put into a tenants file, or taken out, as text: its comments, its order and its form stay.

Text is easily broken, so that each revision is proved: the new text must mean what the old one meant, with the one change, and
all files together must load. Where that can't be had, nothing is written.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any

from app.tenancy.snapshot import load, tenants_files
from app.tenancy.tenants_file import TenantsInvalid, read_tenants_file
from app.tenancy.yaml_document import YamlDocument, YamlInvalid
from app.tenancy.yaml_text import NotPlain, with_item, without_item

Entry = dict[str, str]


class NotRevised(ValueError):
    """Nothing was written; the message says why."""


def _flow(entry: Entry) -> str:
    quoted = {name: f'"{value}"' if name == "sha256" else value for name, value in entry.items()}
    return "{" + ", ".join(f"{name}: {value}" for name, value in quoted.items()) + "}"


def add_key(path: Path, tenant: str, entry: Entry) -> Path:
    """Returns the file that was written. Raises `TenantsInvalid` where it was not valid before, and `NotRevised`."""

    def change(keys: list[Any]) -> list[Any]:
        return [*keys, YamlDocument(_flow(entry).encode()).value]

    return _revise(path, tenant, lambda text: with_item(text, ("tenants", tenant), "keys", _flow(entry)), change)


def remove_key(path: Path, tenant: str, key_id: str) -> Path:
    """Likewise."""

    def change(keys: list[Any]) -> list[Any]:
        kept = [key for key in keys if key["id"] != key_id]
        if kept == keys:
            raise NotRevised(f"tenant {tenant} has no key {key_id}")
        return kept

    return _revise(path, tenant, lambda text: without_item(text, ("tenants", tenant), "keys", key_id), change)


def _revise(path: Path, tenant: str, edit: Callable[[str], str], change: Callable[[list[Any]], list[Any]]) -> Path:
    load(path)
    file = _file_of(path, tenant)
    before = file.read_bytes()
    expected = _copy(YamlDocument(before).value)
    owner = expected["tenants"][tenant]
    owner["keys"] = change(owner.get("keys", []))
    try:
        after = edit(before.decode()).encode()
        if YamlDocument(after).value != expected:
            raise NotRevised("the file is written in a way that can't be edited safely")
    except (UnicodeDecodeError, YamlInvalid, NotPlain):
        raise NotRevised("the file is written in a way that can't be edited safely") from None
    _check(path, file, after)
    _replace(file, after)
    return file


def _file_of(path: Path, tenant: str) -> Path:
    for file in tenants_files(path):
        if tenant in read_tenants_file(file).entry.tenants:
            return file
    raise NotRevised(f"there is no tenant {tenant} in {path}")


def _copy(value: Any) -> Any:
    """Without what anchors share: a change must be seen in one place alone."""
    if isinstance(value, dict):
        return {name: _copy(of) for name, of in value.items()}
    return [_copy(of) for of in value] if isinstance(value, list) else value


def _check(path: Path, revised: Path, content: bytes) -> None:
    with TemporaryDirectory() as folder:
        for at, file in enumerate(tenants_files(path)):
            (Path(folder) / f"{at}.yaml").write_bytes(content if file == revised else file.read_bytes())
        try:
            load(Path(folder))
        except TenantsInvalid as invalid:
            fault = invalid.faults[0]
            raise NotRevised(f"it would not be valid then: {fault.field}: {fault.sentence}") from None


def _replace(file: Path, content: bytes) -> None:
    """Whole or not at all. The name begins with a point, so that no gateway reads it before its time."""
    real = file.resolve()
    beside = real.with_name(f".{real.name}.{token_hex(4)}")
    try:
        beside.touch(mode=0o600)
        beside.write_bytes(content)
        shutil.copymode(real, beside)
        beside.replace(real)
    except OSError as error:
        raise NotRevised(f"{file} can't be written: {error.strerror}") from None
    finally:
        beside.unlink(missing_ok=True)
