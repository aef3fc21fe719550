"""Building blocks of the self-contained HTML pages of `explain` and `report`."""
