"""Certificates: the authority, identities, requests, revocation."""
