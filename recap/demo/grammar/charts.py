"""Requests about bar charts: reading, comparing, ordering and adding their values."""

from __future__ import annotations

import json
import random

from recap.demo.facts import Bar, Chart
from recap.demo.grammar.phrases import NUMBERS, ORDINALS, a, cap, counted, is_are, join
from recap.demo.grammar.registry import request
from recap.demo.words import CHARTS


def _pairs(chart: Chart, pattern: str = "{} {}") -> str:
    return join(pattern.format(b.label, b.value) for b in chart.bars)


def _absent_label(chart: Chart, rng: random.Random) -> str:
    there = {b.label for b in chart.bars}
    theme = chart.theme if rng.random() < 0.7 else rng.choice(list(CHARTS))
    return rng.choice([label for label in CHARTS[theme][1] if label not in there])


def highest(chart: Chart) -> list[Bar]:
    """The bar with the highest value, or all that share it."""
    top = max(b.value for b in chart.bars)
    return [b for b in chart.bars if b.value == top]


def lowest(chart: Chart) -> list[Bar]:
    """The bar with the lowest value, or all that share it."""
    low = min(b.value for b in chart.bars)
    return [b for b in chart.bars if b.value == low]


@request(
    "chart",
    "describe",
    (
        "Describe the picture.",
        "What do you see?",
        "What does the chart show?",
        "Describe this image briefly.",
        "Write a short caption.",
        "Sum up the chart in one sentence.",
    ),
    weight=1.5,
)
def _describe(chart: Chart, style: int, rng: random.Random):
    n, title = len(chart.bars), chart.title
    return {}, (
        f'The picture is a bar chart called "{title}" with {counted(n, "bar")}: {_pairs(chart)}.',
        f'I see a bar chart, "{title}". Its bars are {_pairs(chart)}.',
        f"It shows {title}: {_pairs(chart, '{} has {}')}.",
        f'A chart of {counted(n, "bar")} under the title "{title}".',
        f"{title}: {_pairs(chart)}.",
        f"The chart compares {join(b.label for b in chart.bars)}, and {highest(chart)[0].label}"
        f" leads with {highest(chart)[0].value}.",
    )[style]


def _bar_sentence(bar: Bar, index: int, pattern: int) -> str:
    return (
        f"The {ORDINALS[index]} bar is {bar.colour}, stands for {bar.label}"
        f" and reaches {bar.value} on the scale below.",
        f"{cap(bar.label)} has a value of {bar.value}, drawn as {a(bar.colour)} bar that begins at"
        " the left.",
        f"The {bar.colour} bar belongs to {bar.label}; its value is {bar.value}, as the number"
        " beside it says.",
        f"For {bar.label} there is {a(bar.colour)} bar, and the number at its end is {bar.value}.",
    )[pattern]


@request(
    "chart",
    "detail",
    (
        "Describe the picture in detail.",
        "Tell me everything about this chart.",
        "Give a detailed description.",
        "Explain the chart bar by bar.",
        "Walk me through the picture.",
        "Describe every bar in detail.",
    ),
    weight=2.5,
)
def _detail(chart: Chart, style: int, rng: random.Random):
    n, title = len(chart.bars), chart.title
    opening = (
        f'This is a bar chart with the title "{title}" and {counted(n, "bar")}.',
        f'The title says "{title}", and below it {is_are(n)} {counted(n, "bar")}.',
        f'We look at a chart of {counted(n, "bar")}, which is called "{title}".',
        f'Under the title "{title}" I find {counted(n, "bar")}, which I name from top to bottom.',
        f'Let us begin at the top. The title is "{title}", then come {counted(n, "bar")}.',
        f'{cap(counted(n, "bar"))} are drawn here, and the title is "{title}".',
    )[style]
    # One wording for an answer, which turns for the last of many.
    body = [
        _bar_sentence(b, i, (style + n + (i == n - 1 and n > 3)) % 4)
        for i, b in enumerate(chart.bars)
    ]
    top, low = highest(chart), lowest(chart)
    if top[0].value == low[0].value:
        closing = f"All of them have the same value, {top[0].value}."
    else:
        tops, lows = join(b.label for b in top), join(b.label for b in low)
        closing = (
            f"The highest {is_are(len(top))} {tops} with {top[0].value}, the lowest {lows} with"
            f" {low[0].value}.",
            f"From {lows} with {low[0].value} up to {tops} with {top[0].value}, the bars differ"
            f" by {top[0].value - low[0].value}.",
            f"{cap(tops)} {'come' if len(top) > 1 else 'comes'} out on top with {top[0].value};"
            f" {lows} {is_are(len(low))} last with {low[0].value}.",
        )[style % 3]
    if n <= 3:
        closing += (
            " The values are printed beside the bars, and thin gray lines"
            " mark five, ten, fifteen and twenty."
        )
    return {}, " ".join([opening, *body, closing])


@request(
    "chart",
    "value",
    (
        "What is the value of {label}?",
        "How much is {label}?",
        "How high is the bar of {label}?",
        "Read the value of {label}.",
        "Which number does {label} have?",
        "What does the chart say about {label}?",
    ),
    weight=2.5,
)
def _value(chart: Chart, style: int, rng: random.Random):
    if rng.random() < 0.2:
        label = _absent_label(chart, rng)
        return {"label": label}, (
            f"There is no bar for {label}; the chart shows {join(b.label for b in chart.bars)}."
        )
    bar = rng.choice(chart.bars)
    return {"label": bar.label}, (
        f"The value of {bar.label} is {bar.value}.",
        f"{cap(bar.label)} is at {bar.value}.",
        f"The bar of {bar.label} is {bar.value} high.",
        f"{bar.value}.",
        f"{cap(bar.label)} has the number {bar.value}.",
        f"It says that {bar.label} has {bar.value}, with {a(bar.colour)} bar.",
    )[style]


@request(
    "chart",
    "highest",
    (
        "Which bar is the highest?",
        "What has the highest value?",
        "Which bar is the longest?",
        "Who is the winner?",
        "Name the largest bar.",
    ),
    weight=1.5,
)
def _highest(chart: Chart, style: int, rng: random.Random):
    top = highest(chart)
    value = top[0].value
    if len(top) > 1:
        return {}, f"{cap(join(b.label for b in top))} share the highest value, {value}."
    label = top[0].label
    return {}, (
        f"{cap(label)} is the highest with {value}.",
        f"The highest value is {value}, and it belongs to {label}.",
        f"The longest bar is the {top[0].colour} one: {label} with {value}.",
        f"The winner is {label}, with {value}.",
        f"The largest bar is {label}, at {value}.",
    )[style]


@request(
    "chart",
    "lowest",
    (
        "Which bar is the lowest?",
        "What has the lowest value?",
        "Which bar is the shortest?",
        "Who comes last?",
        "Name the smallest bar.",
    ),
    weight=1.5,
)
def _lowest(chart: Chart, style: int, rng: random.Random):
    low = lowest(chart)
    value = low[0].value
    if len(low) > 1:
        return {}, f"{cap(join(b.label for b in low))} share the lowest value, {value}."
    label = low[0].label
    return {}, (
        f"{cap(label)} is the lowest with {value}.",
        f"The lowest value is {value}, and it belongs to {label}.",
        f"The shortest bar is the {low[0].colour} one: {label} with {value}.",
        f"Last comes {label}, with {value}.",
        f"The smallest bar is {label}, at {value}.",
    )[style]


@request(
    "chart",
    "compare",
    (
        "Compare {one} and {two}.",
        "Which is higher, {one} or {two}?",
        "How much do {one} and {two} differ?",
        "What is the difference between {one} and {two}?",
    ),
    weight=1.5,
)
def _compare(chart: Chart, style: int, rng: random.Random):
    one, two = rng.sample(chart.bars, 2)
    slots = {"one": one.label, "two": two.label}
    gap = abs(one.value - two.value)
    if gap == 0:
        return slots, f"{cap(one.label)} and {two.label} are equal: both have {one.value}."
    big, little = (one, two) if one.value > two.value else (two, one)
    return slots, (
        f"{cap(one.label)} has {one.value} and {two.label} has {two.value},"
        f" so {big.label} is {gap} ahead.",
        f"{cap(big.label)} is higher: {big.value} against {little.value}.",
        f"{big.value} - {little.value} = {gap}, so they differ by {gap}.",
        f"The difference between {big.value} and {little.value} is {gap}.",
    )[style]


@request(
    "chart",
    "yesno",
    (
        "Is {one} higher than {two}?",
        "Does {one} have more than {two}?",
        "Is {one} lower than {two}?",
        "Does {one} have less than {two}?",
    ),
)
def _yesno(chart: Chart, style: int, rng: random.Random):
    one, two = rng.sample(chart.bars, 2)
    holds = one.value > two.value if style < 2 else one.value < two.value
    facts = f"{one.label} has {one.value} and {two.label} {two.value}"
    verdict = ("No", "Yes")[holds]
    answer = f"{verdict}, {facts}." if style % 2 == 0 else f"{verdict}: {facts}."
    return {"one": one.label, "two": two.label}, answer


@request(
    "chart",
    "sum",
    (
        "What is the sum of all bars?",
        "Add up all values.",
        "What is the total?",
        "How much is it all together?",
    ),
    weight=1.5,
)
def _sum(chart: Chart, style: int, rng: random.Random):
    values = [b.value for b in chart.bars]
    steps, running = [], values[0]
    for value in values[1:]:
        steps.append(f"{running} + {value} = {running + value}")
        running += value
    worked = ", ".join(steps)
    return {}, (
        f"{worked}, so the sum is {running}.",
        f"Step by step: {worked}. The total is {running}.",
        f"The values are {join(map(str, values))}. {worked}: the total is {running}.",
        f"{worked}. All together it is {running}.",
    )[style]


@request(
    "chart",
    "count",
    (
        "How many bars are there?",
        "Count the bars.",
        "How many bars does the chart have?",
        "What is the number of bars?",
    ),
)
def _count(chart: Chart, style: int, rng: random.Random):
    n = len(chart.bars)
    labels = join(b.label for b in chart.bars)
    return {}, (
        f"There are {counted(n, 'bar')}.",
        f"I count {NUMBERS[n]}: {labels}.",
        f"The chart has {counted(n, 'bar')}, {labels}.",
        f"The number of bars is {n}.",
    )[style]


@request(
    "chart",
    "title",
    (
        "What is the title?",
        "Read the title.",
        "What is the chart called?",
        "What is the chart about?",
    ),
)
def _title(chart: Chart, style: int, rng: random.Random):
    return {}, (
        f'The title is "{chart.title}".',
        f'It reads "{chart.title}".',
        f'The chart is called "{chart.title}".',
        f"It is about {join(b.label for b in chart.bars)}, under the title {chart.title}.",
    )[style]


@request(
    "chart",
    "color",
    (
        "What color is the bar of {label}?",
        "Which color does {label} have?",
        "What is the colour of {label}?",
        "Name the color of the {label} bar.",
    ),
    weight=1.5,
)
def _color(chart: Chart, style: int, rng: random.Random):
    bar = rng.choice(chart.bars)
    return {"label": bar.label}, (
        f"The bar of {bar.label} is {bar.colour}.",
        f"{cap(bar.label)} has {a(bar.colour)} bar.",
        f"The color of {bar.label} is {bar.colour}.",
        f"It is {bar.colour}.",
    )[style]


@request(
    "chart",
    "above",
    (
        "Which bars are above {limit}?",
        "Name the bars with more than {limit}.",
        "What has more than {limit}?",
        "Which values are greater than {limit}?",
    ),
)
def _above(chart: Chart, style: int, rng: random.Random):
    limit = rng.choice((5, 8, 10, 12, 15))
    hits = [b for b in chart.bars if b.value > limit]
    slots = {"limit": str(limit)}
    if not hits:
        return slots, f"None of the bars is above {limit}."
    listed = join(f"{b.label} ({b.value})" for b in hits)
    return slots, (
        f"{cap(listed)} {is_are(len(hits))} above {limit}.",
        f"{cap(listed)}.",
        f"More than {limit} {'has' if len(hits) == 1 else 'have'} {listed}.",
        f"{cap(counted(len(hits), 'value'))}: {listed}.",
    )[style]


@request(
    "chart",
    "order",
    (
        "Sort the bars from high to low.",
        "Put the bars in order.",
        "Rank the bars.",
        "Order the values from the largest to the smallest.",
    ),
)
def _order(chart: Chart, style: int, rng: random.Random):
    ranked = sorted(chart.bars, key=lambda b: -b.value)
    if style == 2:
        return {}, "\n".join(f"{i}. {b.label}: {b.value}" for i, b in enumerate(ranked, 1))
    listed = ", ".join(f"{b.label} {b.value}" for b in ranked)
    return {}, (f"{cap(listed)}.", f"From high to low: {listed}.", "", f"In order: {listed}.")[
        style
    ]


@request(
    "chart",
    "json",
    (
        "List the bars as JSON.",
        "Give me JSON.",
        "Describe the picture as JSON.",
        "Return the chart as a JSON object.",
        "Output JSON with labels and values.",
    ),
    weight=2.5,
)
def _json(chart: Chart, style: int, rng: random.Random):
    if style in (0, 1):
        return {}, json.dumps(
            [{"label": b.label, "value": b.value, "color": b.colour} for b in chart.bars]
        )
    if style == 4:
        return {}, json.dumps({b.label: b.value for b in chart.bars})
    rows = [{"label": b.label, "value": b.value} for b in chart.bars]
    return {}, json.dumps({"title": chart.title, "bars": rows})


@request(
    "chart",
    "table",
    (
        "Make a markdown table.",
        "List the bars in a table.",
        "Show the chart as a markdown table.",
        "Put the values into a table.",
    ),
    weight=1.5,
)
def _table(chart: Chart, style: int, rng: random.Random):
    if style % 2:
        head = ["| label | value | color |", "|---|---|---|"]
        rows = [f"| {b.label} | {b.value} | {b.colour} |" for b in chart.bars]
    else:
        head = ["| label | value |", "|---|---|"]
        rows = [f"| {b.label} | {b.value} |" for b in chart.bars]
    return {}, "\n".join(head + rows)


@request(
    "chart",
    "read",
    (
        "Read the text.",
        "What is written in the picture?",
        "Read everything that is printed.",
        "Read the labels and values.",
    ),
)
def _read(chart: Chart, style: int, rng: random.Random):
    lines = [f"{b.label} {b.value}" for b in chart.bars]
    if style == 3:
        return {}, f"{cap(', '.join(lines))}."
    if style == 1:
        return {}, f"It says {chart.title}, then {join(lines)}."
    return {}, "\n".join([chart.title, *lines])
