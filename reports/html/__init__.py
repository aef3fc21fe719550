"""Building blocks of the pages of `explain` and `report`: self-contained HTML.

html.py     tags, whose contents are escaped        frame.py    a whole page, its sections and tables
style.py    how it looks, in light and dark         script.py   the switch between axes, and values under the pointer
svg.py      what all pictures share                 curves.py   lines over rounds, seconds or bytes
"""
