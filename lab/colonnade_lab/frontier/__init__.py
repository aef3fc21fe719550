"""The frontier: accuracy of all protocols against bytes, rounds and simulated time, chosen on validation rows."""
