"""Context of a protocol's server side, and the parts that several protocols share."""
