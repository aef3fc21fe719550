from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.config.data.columns import check_form
from colonnade.common.data.columns import cells
from colonnade.common.data.columns.cells import (
    FOREIGN,
    PLAIN,
    Misfit,
    Notation,
    Reading,
    dates,
    days,
    notations,
    without_unit,
)

EVERY = (PLAIN, *FOREIGN)


def as_written(number: int, hundredths: int, notation: Notation) -> str:
    whole = f"{number:,}".replace(",", notation.thousands)
    return f"{whole}{notation.decimal}{hundredths:02}"


@pytest.mark.parametrize("notation", EVERY, ids=str)
@given(numbers=st.lists(st.tuples(st.integers(-(10**12), 10**12), st.integers(0, 99)), min_size=1, max_size=5))
def test_numbers_and_dates_are_read_in_the_configured_notation(
    notation: Notation, numbers: list[tuple[int, int]]
) -> None:
    cells = pa.array([as_written(*number, notation) for number in numbers])
    found = Reading("number", notation).numbers(cells).tolist()
    assert found == [float(f"{number}.{hundredths:02}") for number, hundredths in numbers]


@pytest.mark.parametrize("notation", EVERY, ids=str)
@given(data=st.data())
def test_all_that_fits_can_be_read_and_nothing_else_is(notation: Notation, data: st.DataObject) -> None:
    fitting = st.from_regex(notation.pattern.replace(r"\d", "[0-9]"), fullmatch=True)
    any_text = st.text("0123456789.,'’ +-eE\u00a0", max_size=12)
    cell = data.draw(fitting | any_text).strip()
    fits = notation.fits(pa.array([cell])).to_pylist() == [True]
    try:
        read = Reading("number", notation).numbers(pa.array([cell]))[0]
    except Misfit as misfit:
        assert not fits or ("not finite" in str(misfit) or "too large" in str(misfit))
    else:
        assert fits or (cell == "" and read != read)


@pytest.mark.parametrize(
    ("cells", "ways"),
    [
        (["3,5", "12"], ["decimal: ','"]),
        (["2,500"], ["decimal: ','", "thousands: ','"]),
        (["2,500", "3,5"], ["decimal: ','"]),
        (["2,500", "1,300.5"], ["thousands: ','"]),
        (["1.234.567"], ["decimal: ',', thousands: '.'"]),
        (["1'234"], ['thousands: "\'"']),
        (["1 234,5", "12 345,5"], ["decimal: ',', thousands: ' '"]),
        (["1,5", "1.234.567,8", "1,234.5"], []),
        (["1.2.3"], []),
    ],
)
def test_the_notations_of_some_numbers(cells: list[str], ways: list[str]) -> None:
    assert [str(one) for one in notations(pa.array(cells))] == ways


def test_a_unit_stands_before_or_after() -> None:
    cells = pa.array(["€ 12", "12€", "-€ 5", "€ -3", "5", "$ 5", None])
    assert without_unit(cells, "€").to_pylist() == ["12", "12", "-5", "-3", None, None, None]


@pytest.mark.parametrize(
    ("cell", "hint"), [("0.7\nk8,0.8", "does a quotation mark lack its partner"), ("0,7", "declare the column")]
)
def test_a_cell_of_several_lines_points_to_a_quotation_mark(cell: str, hint: str) -> None:
    with pytest.raises(cells.Misfit) as refused:
        cells._refuse(pa.array(["1", cell]), pa.array([1.0, None]), "is no number")
    assert hint in refused.value.hint and refused.value.row == 1


def test_a_missing_key_can_be_filled_in_or_its_row_left_out() -> None:
    with pytest.raises(cells.Misfit) as refused:
        cells.keys(pa.array(["a", " "]))
    assert refused.value.hint == "fill it in, or leave the row out"


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
