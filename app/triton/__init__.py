"""Everything that knows gRPC."""

import os

# gRPC's core writes lines of its own to standard error, between our JSON. It reads this once, when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
