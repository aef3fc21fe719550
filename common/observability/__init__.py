"""Events, metrics, health, and message capture for research."""
