"""Vertical federated learning as a distributed program: labels at a server, columns at parties, gRPC between them."""
