"""Events, metrics, health, and the messages that a researcher captures."""
