from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.config.data.columns import check_form
from colonnade.common.data.columns.cells import Misfit, Reading, dates, days

EPOCH = datetime(1970, 1, 1)
FORMS = ("", "%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%Y/%m/%d %H:%M:%S", "%d-%m-%Y %H:%M")


@given(st.dates(date(1000, 1, 1), date(9999, 12, 31)), st.sampled_from(FORMS))
def test_a_date_is_its_days_since_1970(day: date, form: str) -> None:
    cells = pa.array([day.strftime(form or "%Y-%m-%d"), None])
    found = days(dates(cells, form)).tolist()
    assert found[0] == (day - EPOCH.date()).days and found[1] != found[1]


@given(st.datetimes(datetime(1678, 1, 1), datetime(2262, 1, 1)), st.integers(-12, 12))
def test_a_time_is_its_instant_in_utc_where_it_has_a_zone(time: datetime, hours: int) -> None:
    instant = time.replace(tzinfo=UTC)
    zone = f"{'+' if hours >= 0 else '-'}{abs(hours):02}:00"
    cells = pa.array([time.isoformat(" "), (instant + timedelta(hours=hours)).replace(tzinfo=None).isoformat() + zone])
    assert dates(cells).to_pylist() == [time, time]


@pytest.mark.parametrize(
    ("cell", "form"),
    [
        ("2024-02-30", ""),
        ("2024-3-1", ""),
        ("01.03.2024", ""),
        ("31.02.2024", "%d.%m.%Y"),
        ("29.02.2023", "%d.%m.%Y"),
        ("1.3.24", "%d.%m.%Y"),
        ("1.3.2024 ", "%d.%m.%Y"),
        ("13/13/2024", "%m/%d/%Y"),
        ("1x3x2024", "%d.%m.%Y"),
        ("1.3.2024 25:00", "%d.%m.%Y %H:%M"),
    ],
)
def test_invalid_dates_are_none(cell: str, form: str) -> None:
    assert dates(pa.array([cell]), form).to_pylist() == [None]


@pytest.mark.parametrize("kind", [pa.timestamp(unit) for unit in ("s", "ms", "us")] + [pa.date64(), pa.date32()])
@pytest.mark.parametrize("sign", [1, -1])
def test_dates_that_no_calendar_has_are_refused(kind: pa.DataType, sign: int) -> None:
    whole = pa.int32() if kind == pa.date32() else pa.int64()
    last = pa.array([0, sign * (2 ** (whole.bit_width - 1) - 1)], whole).cast(kind)
    with pytest.raises(Misfit, match="is no date of the years") as refused:
        Reading("date").numbers(last)
    assert refused.value.row == 1


@given(st.datetimes(datetime(1678, 1, 1), datetime(2262, 1, 1)))
def test_a_time_is_the_same_in_every_unit(time: datetime) -> None:
    time = time.replace(microsecond=0)
    found = {days(pa.array([time], pa.timestamp(unit)))[0] for unit in ("s", "ms", "us", "ns")}
    assert found == {(time - EPOCH).total_seconds() / 86_400}


@pytest.mark.parametrize("form", ["%d.%m", "%d.%m.%y", "%d%d%m%Y", "%Y-%m-%d %I", "%", "x"])
def test_forms_that_are_refused(form: str) -> None:
    with pytest.raises(ValueError, match="is no form of dates"):
        check_form(form)
