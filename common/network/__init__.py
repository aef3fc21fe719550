"""Ports, proxies, and bounds on those who connect."""
