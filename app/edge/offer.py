"""Offers to speak another protocol, which no request needs."""

import httptools

from app.edge.connection import Connection

_OFFER = (b"upgrade", b"http2-settings", b"connection")


class Declining(Connection):
    """Passes over an offer to upgrade. httptools takes each, and loses the body; Java makes one with its first request."""

    def feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            rest = memoryview(data)[offer.args[0] :]
            while True:
                head = self._head_without_offer()
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
                self.parser.feed_data(head)
                try:
                    self.parser.feed_data(rest)
                    break
                except httptools.HttpParserUpgrade as another:
                    rest = rest[another.args[0] :]

    def _head_without_offer(self) -> bytes:
        fields = [field for field in self.headers if field[0] not in _OFFER]
        if any(name == b"connection" and b"close" in value.lower() for name, value in self.headers):
            fields.append((b"connection", b"close"))
        line = b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        return b"".join([line, *(b"%s: %s\r\n" % field for field in fields), b"\r\n"])
