"""The contracts of the house's protocols, a module each: common/contracts/registry.py lists them."""
