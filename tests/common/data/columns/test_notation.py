import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.data.columns.cells import FOREIGN, PLAIN, Misfit, Notation, Reading, notations, without_unit

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
