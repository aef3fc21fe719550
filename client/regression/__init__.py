"""Steps of a regression, party side."""
