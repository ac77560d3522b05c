"""Lines of JSON are one string to schemathesis, both ways."""

import schemathesis

schemathesis.serializer.alias("application/x-ndjson", "text/plain")


@schemathesis.deserializer("application/x-ndjson")
def lines(context: schemathesis.DeserializationContext, response: schemathesis.Response) -> str:
    return response.text
