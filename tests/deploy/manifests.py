"""Whether what the chart renders is what Kubernetes takes: each of its ci/*-values.yaml, by two majors of Helm, for the
oldest and the newest Kubernetes, strictly, custom resources included; and what Checkov thinks of it.

Part of `make check`; runs in .venv-deploy, where the schemas are.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from cloudcoil.models.keda import v1alpha1 as keda
from cloudcoil.models.prometheus_operator import v1 as prometheus
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from tests.deploy.helm import CHART, Helm, Manifest

KUBERNETES = ("1.27", "1.37")
CUSTOM = {model.__name__: model for model in (keda.ScaledObject, prometheus.PodMonitor, prometheus.PrometheusRule)}
UNASKED = {
    "CKV2_K8S_6": "the pod of `helm test` lives for seconds, and nothing listens in it",
    "CKV_K8S_8": "likewise",
    "CKV_K8S_9": "likewise",
    "CKV_K8S_15": "an image that is there need not be pulled: tags are not meant to move",
    "CKV_K8S_35": "the gateway reads its settings from the environment, as twelve-factor applications do",
    "CKV_K8S_40": "Triton's and Valkey's images have users of their own, below 10000",
    "CKV_K8S_43": "which digest, only who pushed the image knows",
}


class _Loader(yaml.SafeLoader):
    """YAML in which no key stands twice: the last one would win, and nobody would know."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        twice = [key for key, count in Counter(str(key.value) for key, _ in node.value).items() if count > 1]
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"{twice} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def faults_of_the_chart() -> list[str]:
    faults, rendered = [], {}
    for values in sorted(CHART.glob("ci/*-values.yaml")):
        texts = [
            Helm.major(major).template("-f", str(values), f"--kube-version={version}.0")
            for version in KUBERNETES
            for major in (3, 4)
        ]
        Helm.major(4).lint("-f", str(values))
        if len(set(texts)) > 1:
            faults.append(f"{values.name}: it is not the same with every Helm and every Kubernetes")
        rendered[values.stem] = texts[0]
        manifests = [manifest for manifest in yaml.load_all(texts[0], _Loader) if manifest]
        faults += [f"{values.name}: {fault}" for manifest in manifests for fault in faults_of(manifest)]
        names = Counter((manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests)
        faults += [f"{values.name}: {kind} {name} stands twice" for (kind, name), times in names.items() if times > 1]
    faults += policy_faults(rendered)
    return faults


def faults_of(manifest: Manifest) -> Iterator[str]:
    name = f"{manifest['kind']} {manifest['metadata']['name']}"
    for schema in schemas(manifest["apiVersion"], manifest["kind"]):
        for error in schema.iter_errors(manifest):
            yield f"{name}: {'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"


@cache
def schemas(api: str, kind: str) -> tuple[Draft202012Validator, ...]:
    """A kind without a schema is a `KeyError` or a `FileNotFoundError`: nothing passes unseen."""
    if kind == "HTTPRoute":
        return (Draft202012Validator(json.loads(Path(__file__).with_name("httproute.json").read_text())),)
    if "." in api.partition("/")[0] and not api.partition("/")[0].endswith(".k8s.io"):
        return (Draft202012Validator(strict(CUSTOM[kind].model_json_schema(by_alias=True))),)
    group, _, version = api.rpartition("/")
    file = "-".join(filter(None, (kind.lower(), group.partition(".")[0], version))) + ".json"
    return tuple(built_in(version, file) for version in KUBERNETES)


def built_in(version: str, file: str) -> Draft202012Validator:
    folder = next(Path(str(files("kubernetes_validate")), "kubernetes-json-schema").glob(f"v{version}.*-local-strict"))
    schema, definitions = (json.loads((folder / name).read_text()) for name in (file, "_definitions.json"))
    registry: Registry[Any] = Resource.from_contents(definitions) @ (Resource.from_contents(schema) @ Registry())
    return Draft202012Validator(schema, registry=registry)


def strict(node: Any) -> Any:
    """The models take what they don't know, and drop it; Kubernetes' API would too."""
    if isinstance(node, dict):
        if node.get("type") == "object" and "properties" in node:
            node.setdefault("additionalProperties", False)
        for part in node.values():
            strict(part)
    elif isinstance(node, list):
        for part in node:
            strict(part)
    return node


def policy_faults(rendered: Mapping[str, str]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in rendered.items():
            Path(folder, f"{name}.yaml").write_text(text)
        options = ("--framework=kubernetes", "--compact", "--quiet", "--skip-download", f"--skip-check={','.join(UNASKED)}")
        command = (str(Path(sys.executable).with_name("checkov")), f"--directory={folder}", "--output=json", *options)
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LOG_LEVEL": "ERROR"}, check=False)
    report = json.loads(done.stdout)
    assert report["summary"]["passed"] > 100, "Checkov looked at nothing"
    return [
        f"{failed['file_path']}: {failed['resource']}: {failed['check_id']} {failed['check_name']}"
        for failed in report["results"]["failed_checks"]
    ]


if __name__ == "__main__":
    sys.exit("\n".join(faults_of_the_chart()) or 0)
