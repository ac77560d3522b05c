"""What the chart renders: that its parts find each other, keep everybody else out, and end in peace."""

import re

import pytest
import yaml

from app.api.health import health_routes
from app.settings import Settings
from tests.conftest import ROOT
from tests.deploy.chart import CASES, HELM, NEEDS_HELM, chosen, containers, environment, of, pods, rendered, values
from tests.deploy.helm import CHART, Manifest

SECURE = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
}
LEFT_OUT = {"CONCH_ADMIN_TLS_CLIENT_CA_FILE"}  # a kubelet has no certificate to show

pytestmark = NEEDS_HELM


def test_every_setting_is_offered_or_made_by_the_chart() -> None:
    settings = {f"CONCH_{name.upper()}" for name in Settings.model_fields}
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    offered = set(schema["properties"]["gateway"]["properties"]["settings"]["properties"])
    made = {name for name in environment("everything") if name.startswith("CONCH_")} - set(
        yaml.safe_load((CHART / "ci" / "everything-values.yaml").read_text())["gateway"]["settings"]
    )
    assert offered | made | LEFT_OUT == settings, "they are listed in helm/conch/values.schema.json"
    assert not offered & made


@pytest.mark.parametrize("case", ["least", "cpu"])
def test_the_gateway_starts_with_the_environment_that_it_gets(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, variable in environment(case).items():
        monkeypatch.setenv(name, variable.get("value", "redis://from-a-secret"))
    settings = Settings()
    assert settings.listen.endswith(":8080")
    assert settings.triton == ("dns:///conch-triton:8001",)
    if case == "cpu":
        assert (settings.max_body_bytes, settings.access_log, settings.log_level) == (10485760, False, "warning")


@pytest.mark.parametrize("case", CASES)
def test_a_pod_has_longer_to_end_than_its_program_takes(case: str) -> None:
    told = {name: float(variable.get("value", 0)) for name, variable in environment(case).items() if "_DRAIN_" in name}
    assert pods(case)["gateway"]["spec"]["terminationGracePeriodSeconds"] >= sum(told.values()) + 10
    if triton := pods(case).get("triton"):
        exit_seconds = int(re.findall(r"--exit-timeout-secs=(\d+)", str(triton))[0])
        assert triton["spec"]["terminationGracePeriodSeconds"] > exit_seconds


@pytest.mark.parametrize("case", CASES)
def test_every_container_is_restricted_and_limited(case: str) -> None:
    for pod, container in containers(case):
        assert container["securityContext"] == SECURE, container["name"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
        assert {"cpu", "memory"} <= container["resources"]["limits"].keys() & container["resources"]["requests"].keys()
        assert not container["image"].endswith(":latest")
        assert not [mount for mount in container.get("volumeMounts", ()) if "subPath" in mount]


def test_probes_ask_for_what_the_application_serves() -> None:
    paths = {route.path for route in health_routes(lambda: True)}  # at both ports
    gateway = pods("least")["gateway"]["spec"]["containers"][0]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert gateway[probe]["httpGet"]["path"] in paths
        assert gateway[probe]["httpGet"]["port"] == "admin"
    ports = {port["name"]: port["containerPort"] for port in gateway["ports"]}
    listens = {name: environment("least")[name]["value"] for name in ("CONCH_LISTEN", "CONCH_ADMIN_LISTEN")}
    assert list(listens.values()) == [f"0.0.0.0:{ports['http']}", f"0.0.0.0:{ports['admin']}"]


def test_triton_stays_ready_while_it_loads_a_model_and_may_take_long_to_start() -> None:
    triton = pods("least")["triton"]["spec"]["containers"][0]
    start, ready = triton["startupProbe"], triton["readinessProbe"]
    assert start["httpGet"]["path"] == "/v2/health/ready"
    assert ready["httpGet"]["path"] == "/v2/health/live"
    assert start["periodSeconds"] * start["failureThreshold"] == 1800
    rollout = of("least", "Deployment")["triton"]["spec"]
    assert rollout["progressDeadlineSeconds"] > 1800
    assert rollout["minReadySeconds"] >= 5  # docs/triton.md says why


def test_gateways_balance_over_every_triton_by_a_headless_name() -> None:
    service = of("least", "Service")["triton"]
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    name, port = service["metadata"]["name"], service["spec"]["ports"][0]["port"]
    assert environment("least")["CONCH_TRITON"]["value"] == f"dns:///{name}:{port}"


@pytest.mark.parametrize("case", CASES)
def test_what_selects_pods_selects_those_of_one_part_and_ports_that_they_have(case: str) -> None:
    for manifest in rendered(case):
        spec, kind = manifest.get("spec", {}), manifest["kind"]
        selector = spec.get("podSelector") or spec.get("selector")
        if selector is None:
            continue
        part = manifest["metadata"]["labels"]["app.kubernetes.io/component"]
        assert chosen(selector if "matchLabels" in selector else {"matchLabels": selector}, case) == [part], kind
        has = {port["name"] for port in pods(case)[part]["spec"]["containers"][0]["ports"]}
        ports = [port.get("targetPort") for port in spec.get("ports", ())]
        ports += [endpoint["port"] for endpoint in spec.get("podMetricsEndpoints", ())]
        ports += [port["port"] for rule in spec.get("ingress", ()) for port in rule["ports"]]
        assert set(ports) <= has, kind


@pytest.mark.parametrize("case", CASES)
def test_what_is_scaled_exists_and_has_no_number_of_replicas_of_its_own(case: str) -> None:
    deployments = {deployment["metadata"]["name"]: deployment for deployment in of(case, "Deployment").values()}
    for kind in ("HorizontalPodAutoscaler", "ScaledObject"):
        for scaler in of(case, kind).values():
            assert "replicas" not in deployments[scaler["spec"]["scaleTargetRef"]["name"]]["spec"]


def test_tritons_are_scaled_by_a_series_that_the_rules_record() -> None:
    trigger = of("everything", "ScaledObject")["triton"]["spec"]["triggers"][0]["metadata"]
    (series,) = re.findall(r'max\((\w+){namespace="prod"}\)', trigger["query"])
    rules = [
        rule
        for file in CHART.glob("files/rules/*.yaml")
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
    ]
    assert series in {rule.get("record") for rule in rules}
    assert of("cpu", "HorizontalPodAutoscaler")["triton"]["spec"]["metrics"][0]["external"]["metric"]["name"] == series


@pytest.mark.parametrize("case", CASES)
def test_only_the_gateway_reaches_triton_and_redis_and_only_prometheus_the_metrics(case: str) -> None:
    prometheus = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    policies = of(case, "NetworkPolicy")
    assert policies.keys() >= of(case, "Deployment").keys()
    doors = {
        (part, port["port"]): [chosen(peer["podSelector"], case) if "podSelector" in peer else peer for peer in rule["from"]]
        for part, policy in policies.items()
        for rule in policy["spec"]["ingress"]
        for port in rule["ports"]
        if "from" in rule
    }
    for door in (("triton", "grpc"), ("redis", "redis")):
        assert doors.get(door, [["gateway"]]) == [["gateway"]]
    for door in (("triton", "metrics"), ("gateway", "admin")):
        assert doors.get(door, [prometheus]) == [prometheus]
    assert ("triton", "http") not in doors  # but the kubelet, which no policy holds


def test_files_that_are_read_again_roll_nothing_and_what_is_read_once_does() -> None:
    def gateway(*options: str) -> Manifest:
        return of("least", "Deployment", *options)["gateway"]

    assert gateway("--set-string=tenants.text=tenants: {}") == gateway()
    elsewhere = ("--set=redis.enabled=false,networkPolicy.enabled=false", "--set=redis.url=redis://")
    assert gateway(elsewhere[0], elsewhere[1] + "a") != gateway(elsewhere[0], elsewhere[1] + "b")


@pytest.mark.parametrize("case", CASES)
def test_what_pods_mount_and_read_is_rendered_or_was_named_by_the_operator(case: str) -> None:
    own = {manifest["metadata"]["name"] for manifest in rendered(case) if manifest["kind"] in ("ConfigMap", "Secret")}
    named = set(re.findall(r"[\w-]+", (CHART / "ci" / f"{case}-values.yaml").read_text()))
    text = str(pods(case))
    used = re.findall(
        r"'(?:secretName|claimName)': '([^']+)'|'(?:configMap|secret|secretKeyRef|secretRef)': {[^}]*'name': '([^']+)'", text
    )
    assert used
    assert {"".join(names) for names in used} <= own | named


def test_a_long_name_is_cut_to_what_kubernetes_takes() -> None:
    names = [manifest["metadata"]["name"] for manifest in rendered("everything", f"--set=fullnameOverride={'a' * 60}")]
    assert max(map(len, names)) < 64
    assert len(set(names)) > 4


def test_dashboards_and_rules_are_passed_on_as_they_are() -> None:
    shown = {name: text for manifest in rendered("everything") for name, text in manifest.get("data", {}).items()}
    for file in CHART.glob("files/dashboards/*.json"):
        assert shown[file.name].strip() == file.read_text().strip()
    rules = [manifest["spec"] for manifest in rendered("everything") if manifest["kind"] == "PrometheusRule"]
    assert rules == [yaml.safe_load(file.read_text()) for file in sorted(CHART.glob("files/rules/*.yaml"))]


def test_alerts_lead_to_where_the_runbook_is_read() -> None:
    rules = str(rendered("everything", "--set=monitoring.runbook=https://wiki.example/conch"))
    assert "'runbook_url': 'https://wiki.example/conch#conchdown'" in rules
    assert "docs/runbook.md#" not in rules


@pytest.mark.parametrize("case", CASES)
def test_who_installs_is_told_what_to_look_at_and_what_is_open(case: str) -> None:
    (name,) = {deployment["metadata"]["name"] for part, deployment in of(case, "Deployment").items() if part == "gateway"}
    said = HELM.notes("-f", values(case))
    assert f"rollout status deployment/{name}\n" in said
    assert "NO NETWORK POLICY" not in said
    assert "THERE IS NO NETWORK POLICY" in HELM.notes("-f", values(case), "--set=networkPolicy.enabled=false")


def test_the_collector_judges_as_the_one_in_compose() -> None:
    ours, theirs = (
        yaml.safe_load(text)
        for text in (
            of("cpu", "ConfigMap")["collector"]["data"]["collector.yaml"],
            (ROOT / "config" / "compose" / "collector.yaml").read_text(),
        )
    )
    assert ours.pop("exporters") != theirs.pop("exporters")
    assert ours == theirs
