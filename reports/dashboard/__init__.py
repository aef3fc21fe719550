"""`colonnade up --dashboard`: the report of a run while it goes on, served to browsers.

address.py   where it listens, from the command line      site.py    the web server: one page, to those who may see it
current.py   the page, made anew upon a request          script.py  updates of the page in a browser
live.py      the server, during the run
"""
