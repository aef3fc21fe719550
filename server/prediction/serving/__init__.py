"""Prediction service for outside callers: authentication (tokens.py), batching of questions (batching.py), and the
two interfaces, JSON over HTTP (web.py) and gRPC (grpc_service.py)."""
