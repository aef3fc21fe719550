"""Two straight-line sides that send and receive: mailboxes, quorums, bounds, the virtual clock."""
