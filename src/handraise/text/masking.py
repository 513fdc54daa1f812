"""What a secret looks like, and how it is hidden in what is kept for people to read. Pure.

By three signs: the name it is given under, its own shape, and the values that this process knows to be secret. What has
none of them is not found; what only looks like one is hidden as well, which costs nothing but a word in a record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, TypeAlias
from urllib.parse import quote

__all__ = ["GIVEN", "GIVEN_NEXT", "HEADER", "IN_ADDRESS", "Mask", "has_token", "is_secret_name", "secret_values"]

DOTS = "••••"
_Span: TypeAlias = tuple[int, int]

LEAST_SHOWN = 16  # characters of a secret whose last four are told, so that one can tell it from another
BESIDE = 4096  # characters behind a cut in which a secret that begins before it is still found whole
LEAST_KNOWN = 9  # characters of a value that is looked for wherever it stands; a shorter one is in many words

# By its own shape: how it begins, in this case of letters, and what has to follow.
_SHAPES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("hr_",), r"[\w-]{40,}"),  # tokens of ours
    (("AKIA", "ASIA"), r"[0-9A-Z]{16}\b"),  # Amazon
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"[A-Za-z0-9]{20,}"),
    (("github_pat_",), r"[A-Za-z0-9_]{20,}"),
    (tuple(f"gl{kind}-" for kind in ("pat", "ptt", "dt", "rt", "soat", "cbt", "imt", "agent", "ft")), r"[\w.-]{16,}"),
    (tuple(f"xox{kind}-" for kind in "abceoprs"), r"[\w.-]{10,}"),  # Slack
    (("xapp-",), r"[\w-]{10,}"),
    (("sk-",), r"[A-Za-z0-9_-]{20,}"),  # OpenAI, Anthropic
    (("sk_live_", "sk_test_", "rk_live_", "rk_test_"), r"[A-Za-z0-9]{16,}"),  # Stripe
    (("whsec_",), r"[A-Za-z0-9+/=]{20,}"),
    (("AIza",), r"[\w-]{35}"),  # Google
    (("ya29.", "GOCSPX-"), r"[\w.-]{20,}"),
    (("npm_",), r"[A-Za-z0-9]{30,}"),
    (("pypi-",), r"[A-Za-z0-9_-]{30,}"),
    (("rubygems_",), r"[0-9a-f]{40,}"),
    (("dckr_pat_",), r"[\w-]{20,}"),
    (("hf_", "gsk_", "xai-", "r8_", "pplx-", "ntn_"), r"[A-Za-z0-9]{30,}"),
    (("dop_v1_", "doo_v1_", "dor_v1_"), r"[a-f0-9]{40,}"),  # DigitalOcean
    (("lin_api_", "lin_oauth_", "lin_wh_"), r"[A-Za-z0-9]{30,}"),
    (("sgamp_",), r"[\w-]{20,}"),
    (("hvs.", "hvb.", "hvr."), r"[\w-]{24,}"),  # Vault
    (("s.",), r"(?=[a-z0-9]*[A-Z])(?=[A-Za-z]*[0-9])[A-Za-z0-9]{24}\b"),  # an older Vault
    (("SG.",), r"[\w-]{16,100}+\.[\w-]{16,}"),  # SendGrid
    (("shpat_", "shpca_", "shppa_", "shpss_"), r"[0-9a-fA-F]{32}"),
    (("dapi",), r"[0-9a-f]{32}\b"),  # Databricks
    (("pscale_tkn_", "pscale_pw_", "pscale_oauth_"), r"[\w.-]{20,}"),
    (("dp.pt.", "dp.st.", "dp.ct.", "dp.sa."), r"[\w.-]{40,}"),  # Doppler
    (("glsa_", "glc_", "sntrys_", "sntryu_"), r"[\w=+/-]{30,}"),  # Grafana, Sentry
    (("ATATT3",), r"[\w=-]{40,}"),  # Atlassian
    (("tskey-",), r"[a-z]{1,20}+-[\w-]{16,}"),  # Tailscale
    (("pul-",), r"[0-9a-f]{40}\b"),
    (("AGE-SECRET-KEY-1",), r"[0-9A-Z]{50,}"),
    (("eyJ",), r"[\w-]{10,200}+\.eyJ[\w-]{10,}\.[\w-]*"),  # JSON web tokens
)
_BLOCK = "-----BEGIN "
_PRIVATE = r"(?:[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?|PGP MESSAGE)"  # public ones and signatures are there to be read
# Not in the middle of a word. The letter of an escaped line end and the digits of an escaped character are none.
_BEGINS = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f][0-9A-Fa-f]))"
_PRIVATE_BLOCK = rf"{_BLOCK}{_PRIVATE}-----(?:[\s\S]*?-----END {_PRIVATE}-----|[\s\S]*)"
# By how each begins: a pattern is tried only where its beginning was found.
_BY_BEGINNING = {
    **{begin: re.compile(_BEGINS + re.escape(begin) + rest) for begins, rest in _SHAPES for begin in begins},
    _BLOCK: re.compile(_PRIVATE_BLOCK),
}
IN_ADDRESS = re.compile(r"://[^\s/@:]{0,200}+:(?!\$)[^\s/]{1,500}@")

# By where it stands in a command.
_GIVEN_AS = r"password|passwd|secret|token|api[_-]?key|access[_-]?key|[_-]pass(?![a-z0-9])|[_-]pwd(?![a-z0-9])"
GIVEN = re.compile(rf"(?i)^-{{0,2}}[\w-]*({_GIVEN_AS})[\w-]*=['\"]?[^\s'\"$<{{(].{{3,}}")
GIVEN_NEXT = re.compile(rf"(?i)^--[\w-]*({_GIVEN_AS})$")
HEADER = re.compile(r"(?i)\b(proxy-)?authorization\s*:|\bx-(api-key|auth-token)\s*:")

# By the name of a field, of which only letters and digits count. Tokens are also what models are paid for.
_NAMES = re.compile(
    r"passw(?:or)?d|passphrase|secret|token(?!s?(?:count|type|limit|budget|usage|iz|detail|window))|"
    r"(?:api|access|account|private|signing|encryption|session|master)key|authorization|cookie|credential|"
    r"^(?:auth|pwd|bearer|apitoken)$"
)
_SHORT_NAMES = re.compile(r"(?:^|[_-]|(?<=[a-z]))(?:PASS|PWD|Pass|Pwd)$|(?:^|[_-])(?:pass|pwd)$")
_COUNTED = re.compile(r"tokens")
_PAIRS = ("name", "key", "header")  # how a list of variables or headers calls what its `value` belongs to

# In a text, where it is told by the word before it. Each is tried only where one of its words was found: a pattern that
# looks for itself takes a hundred times as long, and holds up everybody else meanwhile.
_WORDS = (
    *("password", "passwd", "passphrase", "secret", "token", "authorization", "cookie", "credential"),
    *(f"{which}{gap}key" for which in ("api", "access", "account", "private") for gap in ("", "_", "-")),
)
_SHORT_WORDS = ("_pass", "_pwd", "-pass", "-pwd")  # with nothing behind them: `tests_passed` is no secret
_NAME = r"[\w-]{0,60}"
_NAMED = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?:authorization|cookie)\s*:\s*([^\r\n\"'\\]+)",  # a header, up to the end of its line
        rf"(?!tokens){_NAME}\\*[\"']\s{{0,9}}:\s{{0,9}}\\*[\"']([^\"'\\]+)",  # a field of JSON that is itself a text
        rf"(?!tokens){_NAME}\s{{0,3}}[:=]\s{{0,3}}\\*[\"']([^\"'\\\s]{{4,}})\\*[\"']",
        rf"(?!tokens){_NAME}=([^\s\"'\\$<{{(&;,]{{4,}})",
        rf"(?!tokens){_NAME}:\s{{1,3}}([^\s\"'\\$<{{(&;,]{{12,}})",
    )
)
_OPTION = re.compile(rf"{_NAME}\s{{1,3}}([^\s\"'\\$-][^\s\"'\\]*)")
_BEFORE_OPTION = re.compile(r"--[\w-]*$")
_REST = r"([^\s\"'<>\\]{16,})"  # of an address
_TOLD: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    (("bearer", "basic"), re.compile(r"\b\w+\s{1,3}([\w.~+/=-]{8,})")),
    ((" -u", " --user"), re.compile(r"\s-[-a-z]+\s{1,3}[^\s:]{1,100}:([^\s\"'\\]+)")),
    (("://",), re.compile(r"://[^\s/@:]{0,200}+:(?!\$)([^\s/]{1,500})@")),
    (("://",), re.compile(r"://([^\s/@:$]{16,200})@")),
    # Links of ours: whoever has one signs in, or answers.
    (("/signin/",), re.compile(r"/\w+/([\w-]{16,})", re.IGNORECASE)),
    (("/a/",), re.compile(r"/a/([A-Za-z0-9_-]{43})(?![\w-])")),
    # Where chat services take messages from whoever knows the address.
    (("hooks.slack",), re.compile(rf"hooks\.slack(?:-gov)?\.com/{_REST}", re.IGNORECASE)),
    (("webhooks/",), re.compile(r"webhooks/(\d{15,22}/[\w-]{20,})", re.IGNORECASE)),
    (("webhook.office", "/webhook/"), re.compile(rf"(?:webhook\.office\.com|/webhook)/{_REST}", re.IGNORECASE)),
    (("chat.googleapis.com",), re.compile(rf"chat\.googleapis\.com/{_REST}", re.IGNORECASE)),
    (("/bot",), re.compile(r"/bot(\d{6,12}:[\w-]{30,})", re.IGNORECASE)),
    (("/hooks/",), re.compile(r"/hooks/([A-Za-z0-9]{17,}(?:/[A-Za-z0-9]{17,})?)(?![\w-])", re.IGNORECASE)),
    # Signatures that let in whoever has the address.
    (("sig=", "x-amz-signature=", "x-goog-signature="), re.compile(r"[\w-]+=([\w%+/=-]{20,})", re.IGNORECASE)),
    ((".atlasv1.",), re.compile(r"\.atlasv1\.([\w-]{40,})", re.IGNORECASE)),
)
# Most texts hold nothing of all this, which is found out first.
_TRIGGERS = tuple(
    {part.lower() for part in (*_WORDS, *_SHORT_WORDS, *(part for parts, _ in _TOLD for part in parts), *_BY_BEGINNING)}
)
_ESCAPED = re.compile(r"\\/|%(?:2[0F]|3[AD]|40|22)", re.IGNORECASE)  # signs that an address or JSON writes otherwise
MOST_NAMES, LONGEST_NAME = 4096, 100  # of fields, whose masks are remembered


@lru_cache(MOST_NAMES)
def is_secret_name(name: str) -> bool:
    """Whether what is given under this name is a secret, in whichever spelling."""
    if _SHORT_NAMES.search(name) is not None:
        return True
    return _NAMES.search(re.sub(r"[^a-z0-9]", "", name.lower())) is not None


def secret_values(*environments: Mapping[str, str], names: Iterable[str] = ()) -> list[str]:
    """The values of variables that are secret by their name, or by being among `names`."""
    always = frozenset(names)
    return [
        value
        for environment in environments
        for name, value in environment.items()
        if len(value) >= LEAST_KNOWN and (name in always or is_secret_name(name))
    ]


def has_token(text: str) -> bool:
    """Whether something in it is a secret by its own shape."""
    found = (_found(text, beginning, partial(_shape, pattern, text)) for beginning, pattern in _BY_BEGINNING.items())
    return any(next(spans, None) is not None for spans in found)


class Mask:
    """Hides secrets in texts and in JSON. `known` are values that are hidden wherever they stand.

    Texts of JSON that are longer than `longest` are cut, and a secret that lies across the cut is gone as well.
    """

    def __init__(self, known: Iterable[str] = (), *, longest: int | None = None) -> None:
        self._longest = longest
        # As it is, and as it is written in JSON or in an address.
        self._known = {
            spelling
            for value in known
            if len(value) >= LEAST_KNOWN
            for spelling in (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], quote(value))
        }
        self._names: dict[str, str] = {}

    def text(self, text: str) -> str:
        spans = self._spans(text)
        if _ESCAPED.search(text):
            spans += _unescaped_spans(text, self._spans)
        return _without(text, spans) if spans else text

    def _spans(self, text: str) -> list[_Span]:
        spans = [span for value in self._known for span in _found(text, value, partial(_whole, len(value)))]
        lowered = _lowered(text)
        if not any(map(lowered.__contains__, _TRIGGERS)):
            return spans
        for beginning, pattern in _BY_BEGINNING.items():
            spans += _found(text, beginning, partial(_shape, pattern, text))
        return [*spans, *_told_spans(text, lowered)]

    def json(self, value: Any) -> Any:
        """The same value, with secrets hidden in its texts and in the names of its fields."""
        match value:
            case str() if self._longest is not None and len(value) > self._longest:
                begin = self.text(value[: self._longest + BESIDE])[:-BESIDE]
                return f"{begin}… ({len(value) - self._longest} characters more)"
            case str():
                return self.text(value)
            case Mapping():
                return self._object(value)
            case list() | tuple():
                return self._list(value)
        return value

    def _object(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        named = any(isinstance(value.get(key), str) and is_secret_name(value[key]) for key in _PAIRS)
        masked: dict[str, Any] = {}
        for key, inner in value.items():
            name = str(key)
            is_secret = is_secret_name(name) or (named and name == "value")
            counts = _COUNTED.search(name.lower()) is not None
            masked[self._name(name)] = self._whole(inner, counts=counts) if is_secret else self.json(inner)
        return masked

    def _name(self, name: str) -> str:
        """Fields have the same names again and again."""
        known = self._names.get(name)
        if known is None:
            known = self.text(name)
            if len(self._names) < MOST_NAMES and len(name) < LONGEST_NAME:
                self._names[name] = known
        return known

    def _list(self, value: list[Any] | tuple[Any, ...]) -> list[Any]:
        """A command as a list of its words has the secret in the word after its name."""
        masked, before = [], ""
        for inner in value:
            is_secret = isinstance(inner, str) and GIVEN_NEXT.match(before) is not None
            masked.append(_dots(inner) if is_secret else self.json(inner))
            before = inner if isinstance(inner, str) else ""
        return masked

    def _whole(self, value: Any, *, counts: bool) -> Any:
        """Everything in it; what counts tokens keeps its numbers."""
        match value:
            case str():
                return _dots(value) if value else value
            case bool() | None:
                return value
            case int() | float():
                return value if counts else DOTS
            case Mapping():
                return {self._name(str(key)): self._whole(inner, counts=counts) for key, inner in value.items()}
            case list() | tuple():
                return [self._whole(inner, counts=counts) for inner in value]
        return DOTS


def _found(text: str, part: str, look: Callable[[int], _Span | None]) -> Iterator[_Span]:
    """The secrets that `look` finds where this part is. What lies in one of them is not looked at once more."""
    at = text.find(part)
    while at >= 0:
        span = look(at)
        if span is not None:
            yield span
        at = text.find(part, max(at + 1, span[1] if span is not None else 0))


def _unescaped_spans(text: str, look: Callable[[str], list[_Span]]) -> Iterator[_Span]:
    """Where the secrets are that only show when signs are written as themselves, as in `https:\\/\\/` and `%2F`."""
    parts: list[str] = []
    places: list[int] = []  # of each character
    done = 0
    for found in _ESCAPED.finditer(text):
        parts += [text[done : found.start()], found[0][1] if found[0][0] == "\\" else chr(int(found[0][1:], 16))]
        places += range(done, found.start() + 1)
        done = found.end()
    places += range(done, len(text) + 1)
    yield from ((places[begin], places[end]) for begin, end in look("".join([*parts, text[done:]])))


def _lowered(text: str) -> str:
    """In small letters, each where it was."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)


def _told_spans(text: str, lowered: str) -> Iterator[_Span]:
    """Where the secrets are that a word before them tells."""
    for word in _WORDS:
        yield from _found(lowered, word, partial(_named, text))
    for word in _SHORT_WORDS:
        yield from _found(lowered, word, partial(_named_shortly, text, len(word)))
    for words, pattern in _TOLD:
        for word in words:
            yield from _found(lowered, word, partial(_first, pattern, text))


def _named(text: str, at: int) -> _Span | None:
    """The longest of what stands behind a name."""
    found = [_first(pattern, text, at) for pattern in _NAMED]
    if _BEFORE_OPTION.search(text, max(0, at - 60), at):
        found.append(_first(_OPTION, text, at))
    spans = [span for span in found if span is not None]
    return (min(begin for begin, _ in spans), max(end for _, end in spans)) if spans else None


def _named_shortly(text: str, length: int, at: int) -> _Span | None:
    after = text[at + length : at + length + 1]
    return None if after.isalnum() or after == "_" else _named(text, at)


def _whole(length: int, at: int) -> _Span:
    return at, at + length


def _first(pattern: re.Pattern[str], text: str, at: int) -> _Span | None:
    found = pattern.match(text, at)
    return None if found is None else found.span(1)


def _shape(pattern: re.Pattern[str], text: str, at: int) -> _Span | None:
    found = pattern.match(text, at)
    return None if found is None else found.span()


def _without(text: str, spans: list[_Span]) -> str:
    """With dots in place of these, of which some may be parts of others."""
    parts, done = [], 0
    begin, end = -1, -1
    for first, last in [*sorted(spans), (len(text) + 1, len(text) + 1)]:
        if first <= end:
            end = max(end, last)
            continue
        if begin >= 0:
            parts += [text[done:begin], _dots(text[begin:end])]
            done = end
        begin, end = first, last
    return "".join([*parts, text[done:]])


def _dots(secret: str) -> str:
    is_shown = len(secret) >= LEAST_SHOWN and "-----" not in secret
    return DOTS + secret[-4:] if is_shown else DOTS
