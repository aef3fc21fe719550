"""Contracts of the built-in protocols, one module each: common/contracts/registry.py lists them."""
