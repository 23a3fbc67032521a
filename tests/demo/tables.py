"""Reads markdown tables back out of answers."""

from __future__ import annotations


def table_rows(answer: str) -> list[dict[str, str]] | None:
    """A markdown table as one dict a row, or None where its rows do not fit its head."""
    lines = [line.strip() for line in answer.strip().split("\n")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    if len(cells) < 3 or any(len(row) != len(cells[0]) for row in cells):
        return None
    if not all(set(cell) == {"-"} for cell in cells[1]):
        return None
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]
