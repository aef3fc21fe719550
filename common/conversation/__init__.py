"""Message exchange between the server and the parties: mailboxes, quorums, bounds, the virtual clock."""
