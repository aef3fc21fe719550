"""Prediction service for outside callers, as JSON over HTTP and over gRPC."""
