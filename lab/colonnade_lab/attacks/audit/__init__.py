"""Lower bounds of a mechanism's epsilon from canaries, beside its claim."""
