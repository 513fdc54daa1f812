"""Server-sent events, read from bytes: every byte once, however they are cut, and never more than a limit."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handraise.transports.sse import LARGEST_EVENT, EventTooLarge, Frame, Frames

MEBI = 1024 * 1024


def read(text: bytes, *, cuts: list[int] | None = None) -> list[Frame]:
    frames, found, start = Frames(), [], 0
    for cut in [*sorted(cuts or []), len(text)]:
        found += frames.feed(text[start:cut])
        start = max(start, cut)
    return found


STREAM = (
    b": hello\n\nid: 1\nevent: asked\ndata: {}\n\n"
    b"data: a\ndata: b\ndata\n\nevent: nothing\n\nid: 7\n\n"
    b"data:no space\ndata:  two\nunknown: x\nretry: 5\n\ndata: \xff\xe2\x82\n\ndata: not ended\n"
)
FRAMES = [
    Frame("asked", "{}", "1"),
    Frame("message", "a\nb\n", None),
    Frame("message", "", "7"),
    Frame("message", "no space\n two", None),
    Frame("message", "\ufffd\ufffd", None),
]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_stream_is_read_alike_however_it_is_cut_and_its_lines_end(end: bytes) -> None:
    stream = STREAM.replace(b"\n", end)
    assert read(stream) == FRAMES
    assert read(stream, cuts=list(range(len(stream)))) == FRAMES
    chance = random.Random(0)
    for _ in range(50):
        assert read(stream, cuts=chance.sample(range(len(stream)), 20)) == FRAMES


@given(st.text(alphabet="\r\n:a d").map(str.encode), st.lists(st.integers(0, 40), max_size=8))
@example(b"data: x\r\ndata: y\n\n", [8, 8])
def test_any_bytes_cut_anywhere_give_the_same_frames(text: bytes, cuts: list[int]) -> None:
    assert read(text, cuts=[min(cut, len(text)) for cut in cuts]) == read(text)


def test_an_event_of_32_mb_in_small_chunks_is_looked_at_once() -> None:
    frames, chunk = Frames(), b"x" * 16_384
    kept = 0
    assert not list(frames.feed(b"data: "))
    for _ in range(32 * MEBI // len(chunk)):
        assert not list(frames.feed(chunk))
        kept += 1
        assert frames._line[-1] is chunk, "it is put aside as it came, not joined to what came before"
    assert len(frames._line) == kept + 1
    [frame] = frames.feed(b"\n\n")
    assert len(frame.data) == 32 * MEBI
    assert not frames._line[:-1] and not frames._lines


@pytest.mark.parametrize("text", [b"data: ", b"data: x\n", b": comment\n", b"x", b"id: 1\r"])
def test_an_event_beyond_the_limit_is_refused_and_nothing_of_it_is_kept(text: bytes) -> None:
    frames = Frames(most=1000)
    assert [frame.data for frame in frames.feed(b"data: " + b"a" * 994 + b"\n\n")] == ["a" * 994]
    with pytest.raises(EventTooLarge, match=r"larger than 1,000 bytes; it was not read"):
        [frame for _ in range(1001) for frame in frames.feed(text)]
    assert not frames._line and not frames._lines


def test_many_events_in_one_chunk_are_not_one_large_event() -> None:
    assert len(list(Frames(most=100).feed(b"data: x\n\n" * 10_000))) == 10_000
    assert LARGEST_EVENT == 64 * MEBI
