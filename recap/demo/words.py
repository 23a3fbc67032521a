"""The closed world of the demo pictures: colours, shapes, places, and printed words.

Everything that a picture can show is named here once, so that the drawing, the questions and
answers, the vision heads and the evaluation agree. Non-goal: no randomness, no drawing.
"""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Colour name -> sRGB. Chosen to stay apart after +-10 of noise in each channel.
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (214, 38, 40),
    "orange": (250, 138, 10),
    "yellow": (248, 214, 36),
    "green": (42, 156, 62),
    "teal": (10, 160, 160),
    "blue": (38, 92, 214),
    "purple": (128, 58, 178),
    "pink": (252, 132, 190),
    "brown": (128, 78, 42),
    "black": (28, 28, 32),
    "gray": (140, 144, 150),
    "white": (250, 250, 250),
}
SHAPES = (
    "circle",
    "square",
    "triangle",
    "diamond",
    "star",
    "heart",
    "hexagon",
    "cross",
    "ring",
    "moon",
    "arrow",
    "drop",
)
# Size name -> diameter in pixels of a 168-pixel picture.
SIZES: dict[str, int] = {"small": 24, "medium": 34, "large": 46}

# The nine cells of a scene in reading order.
PLACES = (
    "top left",
    "top center",
    "top right",
    "middle left",
    "center",
    "middle right",
    "bottom left",
    "bottom center",
    "bottom right",
)
# Background name -> sRGB: soft tints, so that every colour above (white too) stands out.
BACKGROUNDS: dict[str, tuple[int, int, int]] = {
    "cream": (246, 236, 210),
    "mint": (206, 236, 216),
    "sky": (204, 226, 246),
    "lavender": (226, 214, 242),
    "rose": (248, 216, 216),
    "sand": (226, 212, 186),
    "silver": (216, 220, 226),
}

# Chart theme -> (titles, labels). Labels have at most six letters to fit their column.
CHARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "fruit": (
        ("Fruit sold", "Fruit eaten", "Fruit picked"),
        _words("apple banana cherry fig grape kiwi lemon lime mango melon orange peach pear plum"),
    ),
    "days": (
        ("Hours of sun", "Cups of tea", "Books read"),
        ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
    ),
    "animals": (
        ("Animals seen", "Animals fed"),
        ("cat", "dog", "cow", "hen", "pig", "goat", "duck", "horse", "sheep", "mouse"),
    ),
    "drinks": (
        ("Drinks sold", "Cups sold"),
        ("tea", "coffee", "juice", "milk", "water", "cocoa", "cola", "soda"),
    ),
    "months": (
        ("Days of rain", "Trips made"),
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
    ),
    "teams": (
        ("Goals scored", "Games won"),
        ("Lions", "Tigers", "Bears", "Eagles", "Wolves", "Sharks", "Foxes", "Owls"),
    ),
}

HEADERS = _words(
    "CAFE MARKET BAKERY SHOP KIOSK DINER GARDEN BOOKS TOYS MUSEUM FRAGILE SALE MENU OPEN "
    "TICKET PARCEL STORE STUDIO HOTEL FARM"
)
TOTAL = "TOTAL"

# What a receipt can list (also after a quality word on a label).
ITEMS = _words(
    "apple banana cherry fig grape kiwi lemon lime mango melon orange peach pear plum tea coffee "
    "juice milk water cocoa cola soda bread butter cheese egg rice pasta pizza salad soup steak "
    "fish chicken ham bacon honey jam sugar salt pepper garlic onion carrot potato tomato "
    "pumpkin spinach bean corn nut cake cookie pie waffle donut candy chips toast muffin bagel "
    "yogurt cream oil flour cereal sandwich burger taco noodle sauce mustard olive pickle soap "
    "towel brush comb mirror candle lamp clock chair table pillow blanket carpet basket bottle "
    "glass plate bowl spoon fork knife pan pot cup mug kettle scarf glove sock shirt coat hat "
    "boot shoe belt ring watch wallet purse pen pencil paper book notebook ruler eraser stamp "
    "card map globe puzzle ball kite doll robot train drum flute guitar violin piano camera "
    "phone radio cable battery bulb nail hammer screw rope ladder bucket broom sponge seed rose "
    "tulip daisy cactus fern"
)
# What a label can say of an item, or print alone.
QUALITIES = _words(
    "fresh hot cold sweet sour spicy dry soft crisp green red blue white black brown gold silver "
    "big small large tiny heavy light old new clean handmade local wild ripe organic plain "
    "mixed roast frozen daily best free extra super pure rich quick slow warm"
)
# Words that stand before a number on a label.
COUNTERS = _words("lot box gate room seat row pack size page level")


def _lexicon() -> tuple[str, ...]:
    words: dict[str, None] = {}
    for titles, labels in CHARTS.values():
        for title in titles:
            words.update(dict.fromkeys(title.split()))
        words.update(dict.fromkeys(labels))
    words.update(dict.fromkeys((*HEADERS, TOTAL, *ITEMS, *QUALITIES, *COUNTERS)))
    return tuple(words)


# Every printed word; index + 1 is its class in the vision heads (0 means "no word").
LEXICON = _lexicon()
WORD_INDEX = {word: index for index, word in enumerate(LEXICON)}
