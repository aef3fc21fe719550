"""What curious members can make of the messages of a run: attacks on captures of one's own (docs/attacks.md)."""
