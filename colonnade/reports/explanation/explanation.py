"""The result of `Run.explain`: a table, the pages, and a rich display for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colonnade.reports.explanation.page import short_html
from colonnade.reports.explanation.words import headline
from colonnade.reports.html.page import in_notebook

if TYPE_CHECKING:
    import pyarrow as pa

    from colonnade.reports.explanation.write import Explained

_NUMBERS = ("norm", "growth", "noised", "missing", "gain")


class Explanation:
    """How much each party of a finished run matters.

    Attributes:
        page: path of explain.html.
        owned: files about the columns of each party, for its own eyes.
        said: which party is worth its cost, in a sentence.
        measure: name of the metric of `missing` and `lost`, such as `accuracy` or `auc`.
        value: this metric with all parties.
    """

    def __init__(self, made: Explained) -> None:
        found = made.found
        self.page, self.owned = made.page, made.owned
        self.said, self.measure, self.value = headline(found), found.measure, found.clean
        self._short = short_html(made.trained, found)
        self._rows = [
            {
                "party": party.name, "lost": found.clean - party.missing,
                "low": party.interval and party.interval[0], "high": party.interval and party.interval[1],
                "told": party.told, "bytes": party.sent, "awaited": party.awaited,
                **{key: getattr(party, key) for key in _NUMBERS},
            }
            for party in found.ranked
        ]  # fmt: skip

    @property
    def table(self) -> pa.Table:
        """A row a party, sorted by what the metric loses without it, largest first.

        `lost` lies between `low` and `high` in 95% of the resamples of the rows, and `told` is true if that is above 0.
        `bytes` left the party in the run, and the others waited `awaited` seconds for it. `norm` is that of the head's
        weights on the party, `growth` its ratio to the norm before the first round; neither is a ranking. `noised` and
        `missing` are the metric with noise on the party's features, and with the mean of its outputs in place of every
        row's. Of a forest and of shape functions `missing` is with the party's answers shuffled; of a forest `gain` is
        the share of its splits in the gain of all. What a protocol lacks is null.
        """
        import pyarrow as pa  # noqa: PLC0415

        kinds = {"party": pa.string(), "told": pa.bool_(), "bytes": pa.int64()}
        columns = {key: [row[key] for row in self._rows] for key in self._rows[0]}
        return pa.table({key: pa.array(column, kinds.get(key, pa.float64())) for key, column in columns.items()})

    def __repr__(self) -> str:
        return f"<colonnade.Explanation {self.page}: {self.said}>"

    def _repr_html_(self) -> str:
        return in_notebook(self._short)
