"""Our own counting, in Prometheus's words: the same as those of its own library, whose formats they are."""

import gc
from pathlib import Path

import prometheus_client
import pytest
from cryptography.x509 import load_pem_x509_certificate
from prometheus_client.openmetrics import parser

from app.telemetry.exchange import Exchange
from app.telemetry.instruments import Registry
from app.telemetry.metrics import Metrics
from app.telemetry.ranking import Ranking
from tests.triton.certificates import Authority

OPENMETRICS = "application/openmetrics-text; version=1.0.0, text/plain;q=0.5"
SEEN = (0.0, 0.1, 0.10001, 0.5, 7.0)


def test_what_is_shown_is_what_prometheus_own_library_would_show() -> None:
    registry, theirs = Registry(), prometheus_client.CollectorRegistry()
    ours = registry.counter("requests", "How many.", "route"), registry.gauge("lag_seconds", "How late.")
    spread = registry.histogram("call_seconds", "How long.", "route", bounds=(0.1, 0.5))
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    counter = prometheus_client.Counter("requests", "How many.", ["route"], registry=theirs)
    gauge = prometheus_client.Gauge("lag_seconds", "How late.", registry=theirs)
    histogram = prometheus_client.Histogram("call_seconds", "How long.", ["route"], buckets=(0.1, 0.5), registry=theirs)
    for seconds in SEEN:
        spread.labels('/a"\n').observe(seconds)
        histogram.labels('/a"\n').observe(seconds)
    for counted, told in ((ours[0], counter), (ours[1], gauge)):
        (counted.labels("/a") if counted.names else counted.labels()).inc(3)
        (told.labels("/a") if counted.names else told).inc(3)
    assert prometheus_client.generate_latest(registry) == prometheus_client.generate_latest(theirs)


def test_a_wrong_number_of_labels_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="labels"):
        Registry().counter("requests", "How many.", "route").labels()


def test_a_bucket_leads_to_the_latest_trace_that_was_sampled() -> None:
    metrics = Metrics()
    exchange = Exchange("r")
    exchange.trace_id = "ab" * 16
    metrics.record(exchange, 200)
    assert b"trace_id" not in metrics.exposition(OPENMETRICS)[0]
    metrics.seconds.labels("unmatched").observe(0.004, exchange.trace_id)
    text, media_type = metrics.exposition(OPENMETRICS)
    assert media_type.startswith("application/openmetrics-text")
    read = parser.text_string_to_metric_families(text.decode())  # type: ignore[no-untyped-call]
    [seconds] = [family for family in read if family.name == "conch_request_seconds"]
    assert seconds.unit == "seconds"
    exemplars = [sample.exemplar for sample in seconds.samples if sample.exemplar]
    assert [(exemplar.labels, exemplar.value) for exemplar in exemplars] == [({"trace_id": "ab" * 16}, 0.004)]
    assert b"trace_id" not in metrics.exposition("text/plain")[0]


def test_ten_thousand_tenants_are_as_many_series_as_have_a_place() -> None:
    metrics = Metrics(tenants=3)
    for at in range(10_000):
        metrics.record(Exchange("r", tenant=f"t{at}", code="ok"), 200)
    counts = {values[0]: child.value for values, child in metrics.tenant_requests.children.items()}
    assert counts == {"t0": 1, "t1": 1, "t2": 1, "other": 9_997}


def test_whoever_asks_far_more_takes_the_place_of_whoever_asks_least() -> None:
    ranking = Ranking(2)
    for tenant, requests in (("busy", 500), ("quiet", 100), ("rising", 300), ("small", 59)):
        names = {ranking.name(tenant) for _ in range(requests)}
        assert names == ({tenant} if tenant in {"busy", "quiet"} else {"other"})
    assert ranking.settle() == {"quiet"}
    assert (ranking.name("rising"), ranking.name("busy"), ranking.name("quiet")) == ("rising", "busy", "other")


def test_who_has_lost_its_place_has_no_series_left() -> None:
    metrics = Metrics(tenants=1)
    for tenant, requests in (("first", 1), ("second", 100)):
        for _ in range(requests):
            metrics.record(Exchange("r", tenant=tenant), 200)
    metrics._rank()
    metrics.record(Exchange("r", tenant="second"), 200)
    for instrument in (metrics.tenant_requests, metrics.tenant_seconds):
        assert {values[0] for values in instrument.children} == {"other", "second"}


def test_two_that_are_alike_do_not_take_turns() -> None:
    ranking = Ranking(1)
    for _ in range(100):
        ranking.name("first"), ranking.name("second")
    assert ranking.settle() == set()


async def test_the_collector_s_pauses_are_measured_while_somebody_watches() -> None:
    metrics = Metrics()
    with metrics._pauses_measured():
        gc.collect()
    gc.collect()
    assert sum(metrics.gc.labels("2").counts) == 1


def test_a_certificate_s_last_moment_is_shown_by_the_setting_that_names_its_file(tmp_path: Path) -> None:
    metrics, pem = Metrics(), Authority.found(tmp_path).file.read_bytes()
    metrics.show_certificates({"triton_tls_ca_file": pem, "triton_tls_cert_file": None, "other": b"no certificate"})
    assert metrics.certificates.children.keys() == {("triton_tls_ca_file",)}
    expires = load_pem_x509_certificate(pem).not_valid_after_utc
    assert metrics.certificates.labels("triton_tls_ca_file").value == expires.timestamp()
