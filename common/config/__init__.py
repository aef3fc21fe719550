"""The sections of a configuration file, as types; the schedule that follows from them."""
