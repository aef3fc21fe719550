"""The papers' tables compared with ours: cells, runs, and pages."""
