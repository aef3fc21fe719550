"""Steps of a regression, server side."""
