"""Canonical JSON: one value has one text, in every language.

Members are sorted by UTF-16 code units, there is no white space, and strings are written as RFC 8785 writes them. Numbers are
written in ECMAScript's notation from their exact decimal value, so `1`, `1.0` and `1e0` are one value and 9007199254740993 is
not 9007199254740992. Whatever is out of bounds, ambiguous or not JSON is refused, never repaired. The parser is our own: the
standard library's keeps the last of two members of one name and rounds numbers.
"""

from __future__ import annotations

import re
from typing import Final

MAX_BYTES: Final = 1024 * 1024
"""The most bytes of a text, as UTF-8. A sidecar takes 256 KiB of arguments unless it is configured otherwise."""

MAX_DEPTH: Final = 64
"""The deepest nesting of objects and arrays; the outermost one is the first level, scalars are none."""

_MAX_DIGITS: Final = 800
_MAX_EXPONENT: Final = 400
_MAX_PLAIN_DIGITS: Final = 21
_MAX_LEADING_ZEROS: Final = 6

_MESSAGES: Final = {
    "TOO_LARGE": "the text is longer than allowed",
    "INVALID_UTF8": "not UTF-8",
    "BYTE_ORDER_MARK": "a byte order mark at the start",
    "UNEXPECTED_END": "the text ends too early",
    "UNEXPECTED_CHARACTER": "a character that JSON does not allow here",
    "TRAILING_TEXT": "more text after the value",
    "NOT_AN_OBJECT": "an object is needed at the top",
    "TOO_DEEP": f"nested deeper than {MAX_DEPTH} levels",
    "DUPLICATE_MEMBER": "a second member of the same name",
    "UNPAIRED_SURROGATE": "an unpaired surrogate in a string",
    "INVALID_ESCAPE": "an escape that JSON does not have",
    "CONTROL_CHARACTER": "an unescaped control character in a string",
    "INVALID_NUMBER": "not a number as JSON writes one",
    "TOO_MANY_DIGITS": f"a number of more than {_MAX_DIGITS} digits",
    "EXPONENT_OUT_OF_RANGE": f"an exponent beyond \u00b1{_MAX_EXPONENT}",
}

_WHITE_SPACE: Final = re.compile(r"[ \t\n\r]*")
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]*')
_DIGITS: Final = re.compile(r"[0-9]*")
_SPECIAL: Final = re.compile(r'["\\\x00-\x1f]')
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WRITTEN: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


class CanonicalError(ValueError):
    """A text that is refused: what is wrong, and where."""

    code: str
    """The stable name of the problem, the same as the sidecar's: `DUPLICATE_MEMBER`, `TOO_DEEP` and so on."""
    pointer: str
    """The JSON Pointer (RFC 6901) of the value with the problem; empty: the whole text."""
    offset: int
    """Where the reader stood, in bytes of UTF-8 from the start of the text."""

    def __init__(self, code: str, pointer: str, offset: int) -> None:
        place = f", in {pointer!a}" if pointer else ""
        super().__init__(f"{_MESSAGES[code]} (at byte {offset}{place})")
        self.code = code
        self.pointer = pointer
        self.offset = offset

    def __reduce__(self) -> tuple[type[CanonicalError], tuple[str, str, int]]:
        return (CanonicalError, (self.code, self.pointer, self.offset))


def canonical_json(text: str | bytes, *, max_bytes: int = MAX_BYTES) -> str:
    """The canonical text of a JSON object; the empty text means `{}`.

    Raises `CanonicalError` for whatever is refused. `max_bytes` lowers the limit of 1 MiB.
    """
    most = min(max_bytes, MAX_BYTES)
    if isinstance(text, bytes):
        if len(text) > most:
            raise CanonicalError("TOO_LARGE", "", most)
        try:
            return _canonicalise(text.decode("utf-8", "strict"))
        except UnicodeDecodeError as problem:
            raise _broken_off(text[: problem.start].decode("utf-8"), problem.start) from None
    if not isinstance(text, str):
        raise TypeError("canonical_json takes the text of a JSON object, as str or bytes")
    # Characters are no more than bytes; what is long is not encoded to find out how long it is.
    if len(text) > most:
        raise CanonicalError("TOO_LARGE", "", most)
    try:
        size = len(text.encode("utf-8", "strict"))
    except UnicodeEncodeError as problem:
        before = text[: problem.start]
        raise _broken_off(before, len(before.encode("utf-8"))) from None
    if size > most:
        raise CanonicalError("TOO_LARGE", "", most)
    return _canonicalise(text)


def quoted(text: str) -> str:
    """A string as RFC 8785 writes it. An unpaired surrogate is refused: no UTF-8 can carry it."""
    try:
        text.encode("utf-8", "strict")
    except UnicodeEncodeError:
        raise ValueError("a text with an unpaired surrogate has no UTF-8") from None
    return _quoted(text)


class _Fault(Exception):
    """A problem on its way up; the path to it is collected from the inside out."""

    def __init__(self, code: str, at: int) -> None:
        super().__init__(code)
        self.code = code
        self.at = at
        self.trail: list[str] = []

    def pointer(self) -> str:
        return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in reversed(self.trail))


def _canonicalise(text: str) -> str:
    if text == "":
        return "{}"
    try:
        return _Reader(text).document()
    except _Fault as fault:
        offset = len(text[: fault.at].encode("utf-8"))
        raise CanonicalError(fault.code, fault.pointer(), offset) from None


def _broken_off(before: str, offset: int) -> CanonicalError:
    """What is wrong with a text that is UTF-8 up to `offset` only: an earlier problem, or that."""
    try:
        _canonicalise(before)
    except CanonicalError as refusal:
        if refusal.offset < offset:
            return refusal
        return CanonicalError("INVALID_UTF8", refusal.pointer, offset)
    return CanonicalError("INVALID_UTF8", "", offset)


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return _WRITTEN.get(character) or f"\\u{ord(character):04x}"


def _quoted(text: str) -> str:
    return '"' + _SPECIAL.sub(_escape, text) + '"'


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.end = len(text)
        self.at = 0

    def document(self) -> str:
        if self.text[0] == "\ufeff":
            raise _Fault("BYTE_ORDER_MARK", 0)
        self.skip_white_space()
        if self.at < self.end and self.text[self.at] in '["-0123456789tfn':
            raise _Fault("NOT_AN_OBJECT", self.at)
        value = self.value(0)
        self.skip_white_space()
        if self.at < self.end:
            raise _Fault("TRAILING_TEXT", self.at)
        return value

    def value(self, depth: int) -> str:
        """Reads one value that stands inside `depth` objects and arrays, and writes it."""
        character = self.peek()
        if character == '"':
            return _quoted(self.string())
        if character == "{":
            return self.object(depth + 1)
        if character == "[":
            return self.array(depth + 1)
        if character != "" and character in "-0123456789":
            return self.number()
        for word in ("true", "false", "null"):
            if character == word[0]:
                return self.word(word)
        raise self.unexpected()

    def object(self, depth: int) -> str:
        self.open(depth)
        if self.take("}"):
            return "{}"
        # Each with the order of its name, and where it stood.
        members: list[tuple[bytes, int, str, str]] = []
        while True:
            source = self.at
            if self.peek() != '"':
                raise self.unexpected()
            name = self.string()
            self.skip_white_space()
            self.need(":")
            self.skip_white_space()
            try:
                value = self.value(depth)
            except _Fault as fault:
                fault.trail.append(name)
                raise
            members.append((name.encode("utf-16-be"), source, name, value))
            self.skip_white_space()
            if self.take("}"):
                break
            self.need(",")
            self.skip_white_space()
        members.sort(key=lambda member: member[:2])
        for first, second in zip(members, members[1:]):
            if first[0] == second[0]:
                twice = _Fault("DUPLICATE_MEMBER", second[1])
                twice.trail.append(second[2])
                raise twice
        return "{" + ",".join(f"{_quoted(name)}:{value}" for _, _, name, value in members) + "}"

    def array(self, depth: int) -> str:
        self.open(depth)
        if self.take("]"):
            return "[]"
        items: list[str] = []
        while True:
            try:
                items.append(self.value(depth))
            except _Fault as fault:
                fault.trail.append(str(len(items)))
                raise
            self.skip_white_space()
            if self.take("]"):
                break
            self.need(",")
            self.skip_white_space()
        return "[" + ",".join(items) + "]"

    def string(self) -> str:
        """Reads a string, and says what it stands for."""
        self.at += 1
        pieces: list[str] = []
        while True:
            pieces.append(self.run(_PLAIN))
            character = self.peek()
            if character == '"':
                self.at += 1
                return "".join(pieces)
            if character == "\\":
                pieces.append(self.escape())
            elif character == "":
                raise _Fault("UNEXPECTED_END", self.at)
            else:
                raise _Fault("CONTROL_CHARACTER", self.at)

    def escape(self) -> str:
        start = self.at
        if start + 1 >= self.end:
            raise _Fault("UNEXPECTED_END", self.end)
        kind = self.text[start + 1]
        self.at += 2
        if kind == "u":
            return self.unicode_escape(start)
        if kind not in _ESCAPES:
            raise _Fault("INVALID_ESCAPE", start)
        return _ESCAPES[kind]

    def unicode_escape(self, start: int) -> str:
        code = self.four_digits(start)
        if 0xD800 <= code < 0xDC00:
            following = self.text[self.at : self.at + 2]
            if following in ("", "\\") and self.at + len(following) == self.end:
                raise _Fault("UNEXPECTED_END", self.end)
            if following != "\\u":
                raise _Fault("UNPAIRED_SURROGATE", start)
            second = self.at
            self.at += 2
            low = self.four_digits(second)
            if not 0xDC00 <= low < 0xE000:
                raise _Fault("UNPAIRED_SURROGATE", start)
            return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00))
        if 0xDC00 <= code < 0xE000:
            raise _Fault("UNPAIRED_SURROGATE", start)
        return chr(code)

    def four_digits(self, start: int) -> int:
        for place in range(self.at, self.at + 4):
            if place >= self.end:
                raise _Fault("UNEXPECTED_END", self.end)
            if self.text[place] not in _HEX:
                raise _Fault("INVALID_ESCAPE", start)
        self.at += 4
        return int(self.text[self.at - 4 : self.at], 16)

    def number(self) -> str:
        start = self.at
        negative = self.take("-")
        whole = self.digits()
        if len(whole) > 1 and whole[0] == "0":
            raise _Fault("INVALID_NUMBER", start)
        fraction = self.digits() if self.take(".") else ""
        if len(whole) + len(fraction) > _MAX_DIGITS:
            raise _Fault("TOO_MANY_DIGITS", start)
        exponent = self.exponent(start) if self.take("e") or self.take("E") else 0
        return _decimal(negative, whole, fraction, exponent)

    def exponent(self, start: int) -> int:
        negative = self.take("-")
        if not negative:
            self.take("+")
        digits = self.digits()
        if len(digits) > _MAX_DIGITS:
            raise _Fault("TOO_MANY_DIGITS", start)
        size = int(digits)
        if size > _MAX_EXPONENT:
            raise _Fault("EXPONENT_OUT_OF_RANGE", start)
        return -size if negative else size

    def digits(self) -> str:
        found = self.run(_DIGITS)
        if found == "":
            raise _Fault("UNEXPECTED_END" if self.at >= self.end else "INVALID_NUMBER", self.at)
        return found

    def word(self, word: str) -> str:
        for character in word:
            self.need(character)
        return word

    def open(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise _Fault("TOO_DEEP", self.at)
        self.at += 1
        self.skip_white_space()

    def run(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        found = match.group() if match else ""
        self.at += len(found)
        return found

    def skip_white_space(self) -> None:
        self.run(_WHITE_SPACE)

    def peek(self) -> str:
        return self.text[self.at] if self.at < self.end else ""

    def take(self, character: str) -> bool:
        found = self.peek() == character
        self.at += found
        return found

    def need(self, character: str) -> None:
        if not self.take(character):
            raise self.unexpected()

    def unexpected(self) -> _Fault:
        return _Fault("UNEXPECTED_END" if self.at >= self.end else "UNEXPECTED_CHARACTER", self.at)


def _decimal(negative: bool, whole: str, fraction: str, exponent: int) -> str:
    """The number +-`whole`.`fraction` times ten to the `exponent`, exactly, in ECMAScript's notation."""
    digits = (whole + fraction).lstrip("0")
    # The value is 0.DIGITS times ten to the `point`.
    point = len(digits) - len(fraction) + exponent
    digits = digits.rstrip("0")
    if digits == "":
        return "0"
    sign = "-" if negative else ""
    if 1 <= point <= _MAX_PLAIN_DIGITS:
        if len(digits) <= point:
            return sign + digits + "0" * (point - len(digits))
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if 1 - _MAX_LEADING_ZEROS <= point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{'+' if point > 0 else '-'}{abs(point - 1)}"
