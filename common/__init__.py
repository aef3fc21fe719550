"""Code that the server and the parties share.

Importing it restricts gRPC in this process to TLS 1.3 and turns its log off unless the environment sets it.
"""

import os

# gRPC's Python has no setting for the minimum TLS version. It has one for the ciphers of TLS 1.2, read once when it is
# imported; it does not affect TLS 1.3. This cipher requires a pre-shared key, which no end has: a peer that offers
# TLS 1.2 alone finds no common cipher.
os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-PSK-CHACHA20-POLY1305"

# gRPC reads this, too, when it is imported, before any configuration. By default it logs a line for every connection
# of an unknown peer.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
