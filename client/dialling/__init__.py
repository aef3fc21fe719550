"""The connection to the server: addresses, proxies, reconnecting, and the instructions that arrive over it."""
