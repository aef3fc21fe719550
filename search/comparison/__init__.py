"""`compare` on one's own configuration: protocols with their defaults and tuned, beside models of all columns.

compared.py   `compare`               subject.py    the rows, read and encoded once
pair.py       runs of one protocol    adapting.py   its configuration, made of the given one
kept_runs.py  results by their keys   outcomes.py   what has come of a protocol
outputs.py    table, pages, csv       waiting.py    the line of progress
"""
