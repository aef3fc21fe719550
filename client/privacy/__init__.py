"""The one way out of a party, and the noise on it."""
