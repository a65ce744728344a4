"""How figures are written on the page."""

from bench.figures import Spread
from bench.result import Comparison


def number(value: float) -> str:
    """Three digits, or all before the point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def number_with_spread(values: Spread) -> str:
    """The median of all rounds with the lowest and the highest."""
    return f"{number(values.median)} ({number(values.low)} to {number(values.high)})"


def compared(comparison: Comparison, value: float) -> str:
    """1.03x, +13.0 %, or +0.52 of the table's unit."""
    if comparison == "alone":
        return number(value)
    if comparison == "added":
        return f"{'+' if value >= 0 else ''}{number(value)}"
    return f"{value:+.1f} %" if comparison == "tax" else f"{value:.2f}x"


def compared_with_spread(comparison: Comparison, values: Spread) -> str:
    """The same with the lowest and the highest of all rounds."""
    median, low, high = (compared(comparison, value) for value in (values.median, values.low, values.high))
    return f"{median} ({low} to {high})"
