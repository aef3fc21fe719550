"""What a run's folder says, as one page.

run.py        the folder, read: summary, events, ledgers    books.py       what left the parties, by kind of message
clock.py      seconds of a run, without its pauses          trace.py       what was measured when
thin.py       long curves with fewer points                 words.py       numbers as people read them
page.py       report.html                                   comparison.py  comparison.html, of several runs
charts.py     accuracy and loss                             presence.py    who was here, away, or missed rounds
traffic.py    bytes by party and by kind of message         privacy.py     what every party spent
incidents.py  what went wrong                               about.py       the sentence on top, configuration, versions
quality.py    confusion and calibration                    importance.py  what `colonnade explain` has found
"""
