"""What a running member shows: events, metrics, health, and the ports that serve them."""
