"""Random scripts of memcached's ASCII commands, on which stock memcached and this store must agree to the byte.

Differences that docs/kv.md lists are kept out: version and stats, item size limits.
"""

from __future__ import annotations

from hypothesis import strategies as st

STORED = [b"a", b"b", b"key-3", b"k" * 250]  # the keys that scripts store

keys = st.sampled_from(
    [b"a", b"b", b"key-3", b"k" * 249, b"k" * 250, b"k" * 251, b"tab\there", b"\xff\xfe", b"noreply"]
)
good_keys = st.sampled_from(STORED)
numbers = st.sampled_from(
    [
        b"0",
        b"1",
        b"5",
        b"10",
        b"99",
        b"4294967295",
        b"4294967296",
        b"18446744073709551615",
        b"18446744073709551616",
        b"-1",
        b"+3",
        b"-0",
        b"x",
        b"1x",
        b"",
        b"007",
        b"9223372036854775808",
        b"-18446744073709551615",
        b"\t4",
    ]
)
bad_numbers = st.sampled_from([b"18446744073709551616", b"-1", b"x", b"1x"])
good_numbers = numbers.filter(lambda n: n not in (b"", b"18446744073709551616", b"-1", b"x", b"1x"))
NO_UNIQUES = [b"4294967296", b"9223372036854775808", b"18446744073709551615"]  # no store gets so many
# Only times that cannot run out during the test, or that are past at once.
times = st.sampled_from([b"0", b"1000", b"-1", b"2592000", b"2592001", b"4102444800", b"2147483647"])
values = st.one_of(
    st.sampled_from([b"", b"0", b"5", b"99", b"18446744073709551615", b"99999", b"12 ", b" 12", b"1 2", b"x" * 1000]),
    st.sampled_from([b"flush_all", b"\r\nflush_all", b"set a 0 0 1\r\nx", b"\r\n", b"quit"]),
    st.integers(0, 2**64 - 1).map(lambda n: b"%d" % n),
    st.binary(max_size=40),
)
ends = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n"])
tails = st.sampled_from([b"", b"", b"", b" noreply", b" junk", b"  ", b" noreply noreply"])
store_tails = st.sampled_from([b"", b"", b"", b" noreply", b" junk", b"  "])


class Refused(bytes):
    """A store that is refused for its form. memcached is sent its line alone, and so does not execute the value."""

    line: bytes


class Cas(bytes):
    """A cas whose unique counts from the first store of the script. memcached, which counts on, is sent another."""

    parts: tuple[bytes, int, bytes]  # what comes before the unique, it, and what comes after it


def sent(command: bytes, lowest: int) -> bytes:
    """What memcached gets for a command, when `lowest` was the last unique before the script."""
    if isinstance(command, Refused):
        return command.line
    if isinstance(command, Cas):
        before, unique, after = command.parts
        return b"%b%d%b" % (before, unique + lowest, after)
    return command


@st.composite
def stores(draw: st.DrawFn) -> bytes:
    verb = draw(st.sampled_from([b"set", b"set", b"set", b"add", b"replace", b"append", b"prepend", b"cas"]))
    value = draw(values)
    parts = [draw(good_keys), draw(st.one_of(st.just(b"0"), good_numbers)), draw(times), b"%d" % len(value)]
    unique = draw(st.integers(0, 40)) if verb == b"cas" else 0
    if verb == b"cas":
        parts.append(draw(st.sampled_from([b"%d" % unique] * 3 + NO_UNIQUES)))
    wrong = draw(st.sampled_from([None, None, None, None, *(i for i in range(len(parts)) if i != 3)]))
    if wrong is not None:
        bad = bad_numbers.filter(lambda n: wrong != 2 or n != b"-1")  # a time of -1 is a time
        parts[wrong] = draw(st.just(b"k" * 251) if wrong == 0 else bad)
    after = draw(store_tails) + draw(ends)
    line = b" ".join([verb, *parts]) + after
    if wrong is None and verb == b"cas" and parts[-1] not in NO_UNIQUES:
        cas = Cas(line + value + b"\r\n")
        cas.parts = (b" ".join([verb, *parts[:-1], b""]), unique, after + value + b"\r\n")
        return cas
    if wrong is None:
        return line + value + b"\r\n"
    refused = Refused(line + value + b"\r\n")
    refused.line = line
    return refused


retrievals = st.builds(
    lambda verb, names, end: verb + b"".join(b" " + n for n in names) + end,
    st.sampled_from([b"get", b"gets", b"get", b"gets", b"gat 0", b"gats 1000", b"gat x", b"gat -1", b"gat"]),
    # No key that is too long: memcached 1.6.18 then loses the answers of the commands before it in the same packet.
    st.lists(keys.filter(lambda k: len(k) <= 250), max_size=30),
    ends,
)
others = st.builds(
    lambda verb, key, number, tail, end: verb + b" " + key + number + tail + end,
    st.sampled_from([b"incr", b"decr", b"incr", b"decr", b"touch", b"delete"]),
    st.one_of(good_keys, keys),
    st.one_of(numbers.map(lambda n: b" " + n), st.just(b"")),
    tails,
    ends,
)
oddities = st.sampled_from(
    [
        b"",
        b" ",
        b"x",
        b"xx",
        b"get",
        b"get ",
        b"incr",
        b"decr a",
        b"touch",
        b"delete",
        b"delete a 0 noreply",
        b"GET",  # of two words, ours drops what follows it: it may be a value
        b"flush_all x",
        b"flush_all 2592000",
        b"flush_all 2592001",
        b"flush_all 1000000000",
        b"flush_all 4102444800",
        b"flush_all 1 2 3",
        b"verbosity",
        b"verbosity 1",
        b"verbosity x",
        b"verbosity 1 noreply",
        b"stats nothing",
        b"stats a b",
        b"bget a",
        b"get a\0b",
        b"get  a   b ",
        b" get a",
        b"\r",
    ]
).map(lambda line: line + b"\r\n")
# memcached hides what it flushes until somebody asks for it, and a later flush_all with a time brings back what is only
# hidden. So all keys are asked for.
flushes = st.sampled_from([b"", b" 0", b" noreply", b" -1", b" -2592001"]).map(
    lambda time: b"flush_all%b\r\nget %b\r\n" % (time, b" ".join(STORED))
)
scripts = st.lists(st.one_of(stores(), stores(), retrievals, others, oddities, flushes), min_size=1, max_size=25)


def shift(answer: bytes, by: int) -> bytes:
    """An answer with `by` taken off each unique, told by its place at the end of a VALUE line with five words."""
    out, at = [], 0
    while at < len(answer):
        end = answer.index(b"\r\n", at) + 2
        words = answer[at:end].split(b" ")
        line, size = answer[at:end], 0
        if words[0] == b"VALUE":
            size = int(words[3]) + 2
            if len(words) == 5:
                line = b" ".join([*words[:4], b"%d\r\n" % (int(words[4]) - by)])
        out.append(line + answer[end : end + size])
        at = end + size
    return b"".join(out)
