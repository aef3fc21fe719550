"""`compare` on a user's configuration: protocols with defaults and tuned, and models of all columns."""
