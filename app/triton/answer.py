"""`ModelInferResponse`, as far as it is looked into for each call.

Its outputs are messages of their own, which nearly always say the same: they stay bytes here, to be read by `described` when
they have not been seen before. Protobuf allows it, since a message within another is written like bytes.
"""

from collections.abc import Sequence
from typing import Protocol, cast

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from tritonclient.grpc import service_pb2 as pb

from app.errors import BadUpstreamResponse


class Answer(Protocol):
    model_version: str
    outputs: Sequence[bytes]
    raw_output_contents: Sequence[bytes]


class _Reading(Protocol):
    def FromString(self, serialised: bytes, /) -> Answer: ...  # noqa: N802


def _shallow() -> _Reading:
    whole = pb.ModelInferResponse.DESCRIPTOR
    file = FileDescriptorProto(name="conch/answer.proto", package="conch", syntax="proto3")
    message = file.message_type.add(name="Answer")
    for name, label, kind in (
        ("model_version", Field.LABEL_OPTIONAL, Field.TYPE_STRING),
        ("outputs", Field.LABEL_REPEATED, Field.TYPE_BYTES),
        ("raw_output_contents", Field.LABEL_REPEATED, Field.TYPE_BYTES),
    ):
        message.field.add(name=name, number=whole.fields_by_name[name].number, label=label, type=kind)
    pool = DescriptorPool()
    pool.Add(file)
    return cast(_Reading, GetMessageClass(pool.FindMessageTypeByName("conch.Answer")))


read_answer = _shallow().FromString


def described(output: bytes) -> pb.ModelInferResponse.InferOutputTensor:
    """What an answer says of one of its outputs: name, datatype and shape. Raises `BadUpstreamResponse`."""
    try:
        return pb.ModelInferResponse.InferOutputTensor.FromString(output)
    except DecodeError:
        raise BadUpstreamResponse("the answer is no message of Triton's") from None
