"""Triton's failures by their real messages, as Triton 24.10 and gRPC say them."""

import pytest
from grpc import StatusCode

from app.triton.status import _TABLE, classify

PREFIX = "[request id: 4f] in ensemble 'sentiment', "
MESSAGES: list[tuple[StatusCode, str, str, bool, str]] = [
    # code, message, name, whether another endpoint may be tried, what is proven ill
    (StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", "deadline", False, "silence"),
    (StatusCode.UNAVAILABLE, "[request id: r] Exceeds maximum queue size", "queue_full", False, "silence"),
    (StatusCode.UNAVAILABLE, PREFIX + "Exceeds maximum queue size", "queue_full", False, "silence"),
    (StatusCode.UNAVAILABLE, "Request timeout expired", "queue_timeout", False, "silence"),
    (StatusCode.UNAVAILABLE, PREFIX + "Request timeout expired", "queue_timeout", False, "silence"),
    (
        StatusCode.UNAVAILABLE,
        PREFIX + "Server is stopping, scheduler for model has stopped accepting new inference requests",
        "stopping",
        True,
        "endpoint",
    ),
    (
        StatusCode.UNAVAILABLE,
        "GRPC server is shutting down and has stopped accepting new requests.",
        "stopping",
        True,
        "endpoint",
    ),
    (StatusCode.UNAVAILABLE, "Server exiting", "stopping", True, "endpoint"),
    (StatusCode.UNAVAILABLE, "Request for unknown model: 'm' version 1 is not at ready state", "not_ready", True, "ensemble"),
    (
        StatusCode.UNAVAILABLE,
        "This protocol is restricted, expecting header 'triton-grpc-protocol-x'",
        "restricted",
        True,
        "ensembles",
    ),
    (
        StatusCode.UNAVAILABLE,
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host",
        "unreachable",
        True,
        "endpoint",
    ),
    (StatusCode.UNAVAILABLE, "errors resolving triton:8001: [UNKNOWN: DNS resolution failed]", "unreachable", True, "endpoint"),
    (StatusCode.UNAVAILABLE, "Socket closed", "cut_off", True, "doubt"),
    (StatusCode.UNAVAILABLE, "recvmsg:Connection reset by peer", "cut_off", True, "doubt"),
    (StatusCode.UNAVAILABLE, "GOAWAY received; Error code: 2; Debug Text: too_many_pings", "cut_off", True, "doubt"),
    (StatusCode.UNAVAILABLE, "max connection age", "cut_off", True, "doubt"),
    (StatusCode.UNAVAILABLE, "Too many pings", "cut_off", True, "doubt"),
    (StatusCode.UNAVAILABLE, "Cancelling all calls", "cut_off", True, "doubt"),
    (StatusCode.UNAVAILABLE, "", "cut_off", True, "doubt"),
    (StatusCode.UNAVAILABLE, PREFIX + "the vocabulary is being reloaded", "model_unavailable", True, "doubt"),
    (StatusCode.NOT_FOUND, "Request for unknown model: 'cls' has no available versions", "not_ready", True, "ensemble"),
    (StatusCode.NOT_FOUND, "Request for unknown model: 'x' is not found", "not_ready", True, "ensemble"),
    (StatusCode.INVALID_ARGUMENT, "Request for unknown model: 'x' is not found", "not_ready", True, "ensemble"),
    (
        StatusCode.INVALID_ARGUMENT,
        "in ensemble 'e', unexpected deadlock, at least one output is not set while no more ensemble steps can be made",
        "failed",
        False,
        "doubt",
    ),
    (StatusCode.INVALID_ARGUMENT, "inference request batch-size must be <= 4 for 'ens'", "refused", False, "contract"),
    (StatusCode.INVALID_ARGUMENT, "unexpected inference input 'TXT' for model 'ens'", "refused", False, "contract"),
    (StatusCode.INTERNAL, PREFIX + "Stub process 'tok_0_0' is not healthy.", "step_dead", True, "ensemble"),
    (StatusCode.INTERNAL, "onnx runtime error 1: CUDA error: device-side assert triggered", "gpu_lost", True, "ensembles"),
    (
        StatusCode.INTERNAL,
        "Failed to increase the shared memory pool size for key 'triton_python_backend_shm_region_2' to 83886080 bytes.",
        "shm_full",
        False,
        "doubt",
    ),
    (StatusCode.INTERNAL, "Received RST_STREAM with error code 2", "cut_off", True, "doubt"),
    (
        StatusCode.INTERNAL,
        "in ensemble 'e', Failed to process the request(s) for model 'cls_0_0', message: RuntimeError: boom",
        "failed",
        False,
        "doubt",
    ),
    (StatusCode.INTERNAL, "", "failed", False, "doubt"),
    (StatusCode.CANCELLED, "CANCELLED", "cancelled_by_server", True, "doubt"),
    (StatusCode.RESOURCE_EXHAUSTED, "CLIENT: Sent message larger than max (67108900 vs. 67108864)", "too_large", False, "none"),
    (
        StatusCode.RESOURCE_EXHAUSTED,
        "CLIENT: Received message larger than max (70000000 vs. 67108864)",
        "answer_too_large",
        False,
        "none",
    ),
    (StatusCode.UNIMPLEMENTED, "", "unimplemented", True, "ensembles"),
    (StatusCode.UNIMPLEMENTED, "Received http2 header with status: 404", "unimplemented", True, "ensembles"),
    (
        StatusCode.UNIMPLEMENTED,
        "ModelInfer RPC doesn't support models with decoupled transaction policy",
        "refused",
        False,
        "contract",
    ),
    (StatusCode.UNKNOWN, "Stream removed (Data frame with END_STREAM flag received)", "cut_off", True, "doubt"),
    (StatusCode.UNKNOWN, "whatever", "failed", False, "doubt"),
    (StatusCode.ALREADY_EXISTS, "whatever", "failed", False, "doubt"),
]


@pytest.mark.parametrize(("code", "message", "name", "elsewhere", "suspect"), MESSAGES, ids=lambda value: str(value)[:30])
def test_a_real_message_is_classified(code: StatusCode, message: str, name: str, elsewhere: bool, suspect: str) -> None:
    failure = classify(code, message)
    assert (failure.name, failure.elsewhere, failure.suspect) == (name, elsewhere, suspect)


def test_every_row_of_the_table_is_met_by_a_real_message() -> None:
    assert {classify(code, message).name for code, message, *_ in MESSAGES} >= {failure.name for *_, failure in _TABLE}


def test_a_refusal_never_repeats_triton_s_words() -> None:
    for code, message, *_ in MESSAGES:
        refusal = classify(code, message).refuse()
        assert not message or message not in refusal.detail
        assert refusal.status in (413, 502, 503, 504)
        assert (refusal.retry_after is not None) == (refusal.status == 503)
