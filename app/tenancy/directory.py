"""Who is behind a key: a snapshot of `tenants.yaml`, replaced whole whenever the file changes."""

import hmac
import time
from collections.abc import Mapping
from pathlib import Path

from app.tenancy.edition import Edition
from app.tenancy.key import digest
from app.tenancy.snapshot import Snapshot, load
from app.tenancy.tenant import Principal, Tenant


class Directory(Edition[Snapshot]):
    def __init__(self, path: Path) -> None:
        """Raises `TenantsInvalid`."""
        super().__init__("tenants", path, load)

    @property
    def tenants(self) -> Mapping[str, Tenant]:
        return self.content.tenants

    def authenticate(self, key: bytes) -> Principal | None:
        """The principal of a key that is known and valid now. Costs a hash and a look-up, however many tenants there are."""
        presented = digest(key)
        credential = self.content.credentials.get(presented)
        if credential is None or not hmac.compare_digest(credential.digest, presented):
            return None
        return credential.principal if credential.not_before <= time.time() < credential.expires_at else None
