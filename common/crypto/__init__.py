"""Cryptography: identities and revocation, key agreement, sealing, masks, private set intersection."""
