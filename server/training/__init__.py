"""What the server's side of a protocol is given, and the parts that several protocols share."""
