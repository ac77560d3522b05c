"""Where a request comes from, as far as that can be believed."""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from starlette.types import Scope

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_IPV6_HOST_BITS = 64  # one customer has them all


class Origin:
    """`X-Forwarded-For` counts only where a trusted proxy wrote it: the last address that is not one of theirs."""

    def __init__(self, trusted: Iterable[Network] = ()) -> None:
        self._trusted = tuple(trusted)

    def of(self, scope: Scope) -> str:
        """An IPv4 address, the /64 of an IPv6 one, or an empty string."""
        client = scope.get("client")
        address = _address(client[0]) if client else None
        if address is not None and self._is_trusted(address):
            address = self._behind(address, scope)
        return _named(address)

    def _behind(self, proxy: Address, scope: Scope) -> Address:
        for part in reversed(_forwarded(scope)):
            address = _address(part)
            if address is None:
                break
            proxy = address
            if not self._is_trusted(address):
                break
        return proxy

    def _is_trusted(self, address: Address) -> bool:
        return any(address.version == network.version and address in network for network in self._trusted)


def _forwarded(scope: Scope) -> list[str]:
    fields = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
    return ",".join(fields).split(",") if fields else []


def _address(text: str) -> Address | None:
    """Some proxies add a port, and put an IPv6 address in brackets to do so."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def _named(address: Address | None) -> str:
    if isinstance(address, IPv6Address):
        return str(IPv6Address(int(address) >> _IPV6_HOST_BITS << _IPV6_HOST_BITS))
    return str(address or "")
