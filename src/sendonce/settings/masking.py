"""What of a value may be shown: never a key, and nothing that a reader cannot see."""

from __future__ import annotations

import re
from typing import Final

KEY_FORM: Final = r"[0-9A-Za-z]{20,64}-[a-z]{2,4}[0-9]{1,3}"
# Mailchimp's keys have 32 hex digits, so that much is one even without its data centre.
_KEY_ANYWHERE: Final = rf"{KEY_FORM}|[0-9A-Fa-f]{{32,}}(?:-[0-9a-z]+)?"
_SHORTEST_KEY: Final = 20
_SHOWN_OF_KEY: Final = 4
_LONGEST_VALUE: Final = 120
_LONGEST_SENTENCE: Final = 1000


class Secret:
    """A text that does not show itself: not in a message, a log, a repr or a traceback."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself, for the one place that must send it."""
        return self._text

    def __repr__(self) -> str:
        return f"Secret({masked(self._text)})"

    def __str__(self) -> str:
        return masked(self._text)

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)


def masked(text: str) -> str:
    """Show at most four characters of a key and its data centre; nothing of what is too short for a key."""
    if len(text) < _SHORTEST_KEY:
        return "…"
    head = re.sub(r"[^0-9A-Za-z]", "", text)[:_SHOWN_OF_KEY]
    suffix = re.search(r"-[a-z]{2,4}[0-9]{1,3}\Z", text)
    return f"{head}…{suffix.group() if suffix else ''}"


def shown(text: str) -> str:
    """Put `text` in quotes for a message."""
    return f'"{readable(text, _LONGEST_VALUE)}"'


def readable(text: str, longest: int = _LONGEST_SENTENCE) -> str:
    """Make a text from outside fit for a message: keys masked, the invisible by code point, not too long."""
    safe = re.sub(_KEY_ANYWHERE, lambda key: masked(key.group()), text)
    cut = safe[:longest] + ("…" if len(safe) > longest else "")
    return "".join(c if c.isprintable() else f"<U+{ord(c):04X}>" for c in cut)


def key_fault(text: str) -> str | None:
    """Say what is wrong with an API key, without any of it, as the rest of a sentence; None if nothing is."""
    if re.fullmatch(KEY_FORM, text):
        return None
    foreign = [(at, c) for at, c in enumerate(text, 1) if not re.fullmatch(r"[0-9A-Za-z-]", c)]
    if foreign:
        # By code point: a zero-width space looks like nothing, a typographic quote like what belongs there.
        named = ", ".join(f"U+{ord(c):04X} at character {at}" for at, c in foreign[:3])
        fault = f"has {named}, which no key has"
    elif "-" not in text:
        fault = "has no data centre at its end"
    else:
        fault = "does not have the form of a key"
    return f"{fault}; wanted: 20 to 64 letters and digits, a hyphen and the data centre, as in …-us19"
