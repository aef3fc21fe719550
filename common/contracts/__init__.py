"""Contracts of protocols, and the parts of contracts that several protocols share."""
