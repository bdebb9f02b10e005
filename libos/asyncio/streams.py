"""asyncio's streams on transports of the runtime's: the same objects, with the methods that are called for each piece
of data in C (native/streams.c). Their state stays in the attributes where asyncio has it."""

from __future__ import annotations

import asyncio
from typing import Any

from .._asyncio import Streams


class StreamReader(asyncio.StreamReader, Streams):
    """What a StreamReader of asyncio's becomes."""

    __slots__ = ()
    read = Streams.read


class StreamWriter(asyncio.StreamWriter, Streams):
    """What a StreamWriter of asyncio's becomes."""

    __slots__ = ()
    write = Streams.write
    drain = Streams.drain


def _calls() -> tuple[Any, ...]:
    """The calls in whose place those of C come."""
    reader, writer, protocol = asyncio.StreamReader, asyncio.StreamWriter, asyncio.StreamReaderProtocol
    return reader.read, reader.feed_data, writer.write, writer.drain, protocol.data_received


_PLAIN = _calls()


def adopt(protocol: Any) -> Any:
    """Have what a protocol of streams has made be of these types. Returns (what the reader has, bytes beyond which it
    pauses its transport), or None: it is another protocol, or has a reader of another type.

    Who has made subclasses of asyncio's keeps them, and who has put methods of his own into asyncio's, too.
    """
    if type(protocol) is not asyncio.StreamReaderProtocol or _calls() != _PLAIN:
        return None
    reader = protocol._stream_reader  # type: ignore[attr-defined]
    if type(reader) is asyncio.StreamReader:
        reader.__class__ = StreamReader
    writer = getattr(protocol, "_stream_writer", None)  # which it does not keep from Python 3.13 on
    if type(writer) is asyncio.StreamWriter:
        writer.__class__ = StreamWriter
    if type(reader) is not StreamReader:
        return None
    return vars(reader), 2 * reader._limit  # type: ignore[attr-defined]
