"""What a party's side of a protocol is given, and the parts that several protocols share."""
