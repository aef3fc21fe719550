"""A model that is asked after its run: sessions, exchange, services."""
