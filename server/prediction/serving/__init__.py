"""A model that answers callers from outside: who may ask (callers.py), how questions are put together (desk.py), and
the two ways in, JSON over HTTP (web.py) and gRPC (remote.py)."""
