"""The bills of materials: complete, the same each time, and as CycloneDX wants them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from referencing import Registry, Resource

from tests.security.sbom import BILLS, ROOT, bill, main, pins

SCHEMAS = next(ROOT.glob(".venv-deploy/lib/python*/site-packages/cyclonedx/schema/_res"), None)


@pytest.mark.parametrize("name", BILLS)
def test_the_bill_names_every_locked_package_with_its_hashes(name: str) -> None:
    text = (ROOT / "requirements" / BILLS[name]).read_text()
    components = bill(name)["components"]
    locked = set(re.findall(r"^[^#\s]\S*==[^\s\\]+", text, re.MULTILINE))
    assert {f"{of['name']}=={of['version']}" for of in components} == locked
    told = [of["content"] for component in components for of in component["externalReferences"][0]["hashes"]]
    assert sorted(told) == sorted(re.findall(r"--hash=sha256:(\S+)", text))


def test_bills_are_written_alike_each_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("first", "second"):
        main(tmp_path / folder)
    written = {file.name: file.read_bytes() for file in (tmp_path / "first").iterdir()}
    assert written == {file.name: file.read_bytes() for file in (tmp_path / "second").iterdir()}
    assert written.keys() == {f"{name}.cdx.json" for name in BILLS}
    assert len(capsys.readouterr().out.splitlines()) == 2 * len(BILLS)


@pytest.mark.skipif(SCHEMAS is None, reason="CycloneDX's schema comes with the tools of make check, which are not here")
@pytest.mark.parametrize("name", BILLS)
def test_a_bill_has_the_form_of_cyclonedx(name: str) -> None:
    assert SCHEMAS
    names = ("bom-1.6", "spdx", "jsf-0.82")
    schemas: dict[str, Any] = {of: json.loads((SCHEMAS / f"{of}.SNAPSHOT.schema.json").read_text()) for of in names}
    known = [(f"http://cyclonedx.org/schema/{of}.SNAPSHOT.schema.json", its) for of, its in schemas.items()]
    resources: list[tuple[str, Resource[Any]]] = [(uri, Resource.from_contents(its)) for uri, its in known]
    validator = Draft7Validator(schemas["bom-1.6"], registry=Registry().with_resources(resources))
    assert [error.message for error in validator.iter_errors(bill(name))] == []


def test_a_marker_and_an_extra_are_no_part_of_a_version(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    zeros = "0" * 64
    lock.write_text(f"# a remark\nuvloop[x]==0.22.1 ; sys_platform != 'win32' \\\n    --hash=sha256:{zeros}\nplain==1+cpu\n")
    first, second = pins(lock)
    assert (first.purl, first.marker, first.hashes) == ("pkg:pypi/uvloop@0.22.1", "sys_platform != 'win32'", (zeros,))
    assert (second.purl, second.marker, second.hashes) == ("pkg:pypi/plain@1%2Bcpu", "", ())
