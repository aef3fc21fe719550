"""One code a row: what a party releases of each row once, and the encoder that makes it."""
