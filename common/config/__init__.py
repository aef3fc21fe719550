"""The sections of a configuration file, as types, and the schedule derived from them."""
