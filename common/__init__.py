"""What both sides have in common.

Importing it has gRPC speak TLS 1.3 and nothing older in this process, and write no log unless the environment asks.
"""

import os

# gRPC's Python has no switch for the oldest TLS that it takes. It has one for the ciphers of TLS 1.2, read once when
# it is imported; those of TLS 1.3 are not its matter. This one wants a key that both ends had before, which nobody has:
# whoever offers TLS 1.2 alone finds no cipher in common.
os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-PSK-CHACHA20-POLY1305"

# gRPC reads this when it is imported, too, before any configuration: strangers make it write a line a connection.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
