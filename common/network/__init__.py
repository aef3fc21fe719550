"""Ports, proxies, and bounds on incoming connections."""
