"""The page of a run's folder.

run.py        the folder, read: summary, events, ledgers    books.py       releases of the parties, by kind of message
clock.py      seconds of a run, without its pauses          trace.py       measurements over time
thin.py       long curves with fewer points                 words.py       numbers as text
page.py       report.html                                   comparison.py  comparison.html, of several runs
charts.py     accuracy and loss                             presence.py    presence, absence, missed rounds
traffic.py    bytes by party and by kind of message         privacy.py     privacy spent by every party
incidents.py  failures                               about.py       the sentence on top, configuration, versions
quality.py    confusion and calibration                    importance.py  findings of `colonnade explain`
gains.py      cumulative gains of two classes
"""
