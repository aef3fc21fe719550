"""Privacy accounting: the cost of releases, the budget spent, and the ledger of sent messages."""
