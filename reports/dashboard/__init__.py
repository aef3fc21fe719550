"""`colonnade up --dashboard`: the report of a run while it goes on, served to browsers.

address.py   where it listens, from the command line      site.py    the web server: one page, to those who may see it
current.py   the page, made anew when somebody asks       script.py  how a browser takes a new page in
live.py      the server beside the run
"""
