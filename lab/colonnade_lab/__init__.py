"""The papers' results and the comparison of protocols, run and shown."""
