"""Requests without a picture, and picture requests that do not fit the picture.

The paragraphs about speculative decoding are learnt by heart: a teaching model can explain
itself. They say only what is true of the methods as published and as built here.
"""

from __future__ import annotations

import random

from recap.demo.grammar.registry import REGISTRY, request

GREETING = "Hello! Show me a picture of shapes, a bar chart or a printed card, and ask about it."
ABILITIES = (
    "I can describe pictures of colored shapes, bar charts and printed cards. Ask me to count, to"
    " find a place, to compare, to read the text, to add up values, or to write JSON, a markdown"
    " table or a little story. I know only my own drawings, so photographs are beyond me."
)
IDENTITY = (
    "I am a tiny vision-language model with the architecture of Qwen2.5-VL and fewer than five"
    " million parameters. I was trained from scratch on drawings, so that you can watch speculative"
    " decoding on any laptop."
)
SPECULATION = (
    "Speculative decoding makes a language model faster without changing what it says. Ordinary"
    " decoding runs the whole model once for every token. Here a cheap drafter first guesses"
    " several tokens ahead, often as a tree with more than one guess at each place. The model then"
    " checks the whole tree in a single forward pass: it walks down from the root as long as a"
    " guess equals its own choice, and adds one bonus token of its own at the end. Wrong guesses"
    " cost a little time, but they never reach the text. The more tokens are accepted in each pass,"
    " the fewer passes are needed."
)
TOKEN_RECYCLING = (
    "Token Recycling is a training-free way to draft. Every row of a forward pass predicts several"
    " likely next tokens, and ordinary decoding throws most of them away. Token Recycling keeps"
    " them in one table: for each token, its latest eight candidates for the next token. A fixed"
    " tree is filled from that table and verified in one pass. The table knows only the last token,"
    " so guesses made for one picture may be wrong for another."
)
RECAP = (
    "RECAP keeps the predictions of every forward pass under the last one, two and three tokens."
    " Longer keys know more of the context and live for one request only, so they belong to its"
    " image; the one-token memory lasts and gives coverage. At each lookup the orders are fused, by"
    " how specific the key is and how concentrated its prediction. A best-first search builds a"
    " tree of candidates, and one pass of the target verifies it. No training is needed."
)
LOSSLESS = (
    "Yes, under greedy decoding the text stays the same, since every token is checked by the target"
    " itself: a guess is kept only where it equals the token that the target would have chosen. In"
    " low precision a near-tie can be rounded differently, which is worth measuring."
)
ACCEPTED_LENGTH = (
    "The accepted length is the number of tokens that one verification pass really emits: the"
    " matched guesses and, as a rule, one bonus token. Its mean over all passes is called MAT."
    " Ordinary decoding has a MAT of one."
)
TREE = (
    "The root of the tree is the last token that was emitted. Each node below it is a guess for the"
    " next token, and each path is a possible continuation. An attention mask lets every node see"
    " only its own path, so one pass checks all paths at once."
)
IMAGE_SENSITIVE = (
    "A state is image-sensitive when its next token changes with the image. After the words: the"
    " circle is, only the picture can tell the color. A memory that looks at the last token alone"
    " fails most at such places."
)
THANKS = "You are welcome. Ask me about another picture!"
BYE = "Goodbye, and come back with another picture."
NO_PICTURE = "I see no picture. Please give me one with shapes, a bar chart or a printed card."


@request(
    "text", "greeting", ("Hello!", "Hi!", "Hey there!", "Good morning!", "Hello, who is there?")
)
def _greeting(picture, style: int, rng: random.Random):
    return {}, GREETING


@request(
    "text",
    "abilities",
    (
        "What can you do?",
        "Help.",
        "What can I ask you?",
        "How can you help me?",
        "Show your skills.",
    ),
)
def _abilities(picture, style: int, rng: random.Random):
    return {}, ABILITIES


@request(
    "text",
    "identity",
    ("Who are you?", "What are you?", "Which model are you?", "Tell me about yourself."),
)
def _identity(picture, style: int, rng: random.Random):
    return {}, IDENTITY


@request(
    "text",
    "speculation",
    (
        "How does speculative decoding work?",
        "What is speculative decoding?",
        "Explain speculative decoding.",
        "Tell me about speculative decoding.",
    ),
    weight=2.0,
)
def _speculation(picture, style: int, rng: random.Random):
    return {}, SPECULATION


@request(
    "text",
    "token_recycling",
    (
        "What is Token Recycling?",
        "How does Token Recycling work?",
        "Explain Token Recycling.",
        "Tell me about Token Recycling.",
    ),
)
def _token_recycling(picture, style: int, rng: random.Random):
    return {}, TOKEN_RECYCLING


@request(
    "text",
    "recap",
    ("What is RECAP?", "How does RECAP work?", "Explain RECAP.", "Tell me about RECAP."),
)
def _recap(picture, style: int, rng: random.Random):
    return {}, RECAP


@request(
    "text",
    "lossless",
    (
        "Is it lossless?",
        "Does speculative decoding change the text?",
        "Is the output the same?",
        "Is speculative decoding lossless?",
    ),
)
def _lossless(picture, style: int, rng: random.Random):
    return {}, LOSSLESS


@request(
    "text",
    "accepted_length",
    ("What is MAT?", "What is the accepted length?", "Explain MAT.", "What does MAT mean?"),
)
def _accepted_length(picture, style: int, rng: random.Random):
    return {}, ACCEPTED_LENGTH


@request(
    "text",
    "tree",
    (
        "What is the tree?",
        "What is a candidate tree?",
        "Explain the tree.",
        "How does the tree work?",
    ),
)
def _tree(picture, style: int, rng: random.Random):
    return {}, TREE


@request(
    "text",
    "image_sensitive",
    (
        "What is an image-sensitive state?",
        "What does image-sensitive mean?",
        "Explain image-sensitive states.",
        "When does a token depend on the image?",
    ),
)
def _image_sensitive(picture, style: int, rng: random.Random):
    return {}, IMAGE_SENSITIVE


@request("text", "thanks", ("Thank you!", "Thanks!", "Thanks a lot.", "Well done!"), weight=0.5)
def _thanks(picture, style: int, rng: random.Random):
    return {}, THANKS


@request("text", "bye", ("Goodbye!", "Bye!", "See you later.", "Good night!"), weight=0.5)
def _bye(picture, style: int, rng: random.Random):
    return {}, BYE


# What a picture of one kind is, for requests that belong to another kind.
_IS = {
    "scene": "this picture shows colored shapes",
    "chart": "this picture is a bar chart",
    "card": "this picture is a printed card",
}
# Request types whose questions make no sense for the other kinds (their wording names the kind).
_FOREIGN: dict[str, tuple[tuple[str, ...], str]] = {
    "scene": (
        ("where", "row", "colors", "count", "positions", "compare"),
        "There are no shapes to speak of",
    ),
    "chart": (("highest", "lowest", "count", "order", "above", "sum"), "There are no bars"),
    "card": (("line", "dearest", "cheapest", "price", "count"), "There are no printed lines"),
}


def foreign_turn(picture, kind: str, other, rng: random.Random):
    """A request made for `other` (a picture of another kind), asked about `picture`: the answer
    says that it does not fit. None where the question would fit after all."""
    names, denial = _FOREIGN[other.kind]
    entry = REGISTRY[other.kind][rng.choice(names)]
    style = rng.randrange(len(entry.questions))
    result = entry.answer(other, style, rng)
    if result is None:
        return None
    question = entry.questions[style].format(**result[0])
    if question in _shared_questions(kind):
        return None
    return question, f"{denial}: {_IS[kind]}."


def _shared_questions(kind: str) -> set[str]:
    return {q for entry in REGISTRY[kind].values() for q in entry.questions}
