"""What the chart refuses, before anything is installed."""

import subprocess

import pytest

from tests.deploy.chart import HELM, NEEDS_HELM, values

pytestmark = NEEDS_HELM


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--set=bogus=1",), "'bogus' not allowed"),
        (("--set=gateway.settings.CONCH_LOG_LEVLE=info",), "'CONCH_LOG_LEVLE' not allowed"),
        (("--set=gateway.settings.CONCH_LISTEN=0.0.0.0:1",), "'CONCH_LISTEN' not allowed"),
        (("--set=gateway.extraEnv[0].name=CONCH_LISTEN",), "extraEnv"),
        (("--set=gateway.replicas=none",), "got string, want integer"),
        (("--set-string=gateway.image.repository=",), "gateway.image.repository: build the image"),
        (("--set=triton.image.tag=24.10-py3",), "release 24.10 is below 26.06"),
        (("--set-string=triton.release=26.05",), "release 26.05 is below 26.06"),
        (("--set=triton.modelControl.mode=poll",), "modelControl"),
        (("--set=triton.extraArgs[0]=--model-control-mode=poll",), "extraArgs"),
        (("--set=triton.repository.existingClaim=models",), "one of url"),
        (("--set=triton.repository.url=",), "one of url"),
        (("--set=triton.repository.url=http://x",), "does not match pattern"),
        (("--set=triton.variant=cpu",), "the variant cpu uses none"),
        (("--set=triton.gpus=0",), "needs a GPU"),
        (("--set=triton.tls.serverSecret=a",), "go together"),
        (
            ("--set=triton.enabled=false,triton.external=t:8001",),
            "networkPolicy.gatewayEgress: it has to let gateways reach Triton",
        ),
        (("--set=redis.enabled=false,redis.url=redis://r",), "gatewayEgress: it has to let gateways reach Redis"),
        (("--set=tracing.endpoint=http://c:4318",), "the collector of traces"),
        (("--set=tracing.tritonUrl=http://c:4318",), "networkPolicy.tritonEgress"),
        (("--set=routes.text=routes.yaml",), "Then use --set-file"),
        (("--set=routes.existingConfigMap=ours",), "routes: give one of"),
        (("--set-string=tenants.text=",), "tenants: give one of"),
        (("--set=tenants.existingSecrets[0]=ours",), "tenants: give one of"),
        (("--set=gateway.autoscaling.mode=hpa,gateway.autoscaling.maxReplicas=1",), "less than minReplicas"),
        (("--set=triton.autoscaling.mode=keda",), "it reads what monitoring.rules records"),
        (("--set=gateway.resources.limits=null",), "limits"),
        (("--set=triton.enabled=false",), "say where Triton is"),
        (("--set=gateway.ingress.enabled=true",), "name at least one"),
        (("--set=gateway.httpRoute.enabled=true",), "name the Gateway"),
        (("--kube-version=1.26",), "incompatible with Kubernetes"),
    ],
    ids=lambda part: part[0] if isinstance(part, tuple) else "",
)
def test_what_would_not_work_is_refused_with_a_reason(options: tuple[str, ...], said: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        HELM.template("-f", values("least"), *options)
    assert said in refused.value.stderr
