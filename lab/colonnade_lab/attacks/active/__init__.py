"""Attacks by a member that departs from the protocol. They only run in a simulation of the federation."""
