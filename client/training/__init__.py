"""Context of a protocol's party side, and the parts that several protocols share."""
