"""Steps of a party between two exchanges."""
