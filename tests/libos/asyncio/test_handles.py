"""Callbacks and timers, which our loop has in C: as on asyncio's own loop."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import weakref
from typing import Any

import pytest

from corelane.libos import asyncio as libos_asyncio


async def turns(n: int) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


@pytest.fixture
def loop_run(run: Any) -> Any:
    """`run` for who opens no connection: one is opened, so that the test says where it ran."""

    def run_with_one(main: Any) -> Any:
        async def both() -> Any:
            async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
                reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                assert await reader.read() == b""
                writer.close()
                return await main()

        return run(both)

    return run_with_one


def test_callbacks_are_called_in_order_and_once(loop_run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        seen: list[Any] = []

        def again() -> None:
            seen.append("again")
            loop.call_soon(seen.append, "of the next turn")

        for n in range(200):
            loop.call_soon(lambda *args: seen.append(args), *range(n % 5))
        loop.call_soon(again)
        loop.call_soon(seen.append, "last")
        await turns(1)
        assert seen == [tuple(range(n % 5)) for n in range(200)] + ["again", "last"]
        await turns(1)
        assert seen[-1] == "of the next turn"

    loop_run(main)


def test_a_callback_runs_in_its_context(loop_run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="none")
        seen: list[str] = []
        name.set("caller's")
        loop.call_soon(lambda: (seen.append(name.get()), name.set("changed")))
        loop.call_soon(lambda: seen.append(name.get()), context=contextvars.Context())
        loop.call_later(0, lambda: seen.append(name.get()), context=None)
        name.set("later")
        await asyncio.sleep(0.001)
        assert seen == ["caller's", "none", "caller's"]
        assert name.get() == "later"

    loop_run(main)


def test_what_is_cancelled_is_not_called(loop_run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        seen: list[int] = []
        soon, timer = loop.call_soon(seen.append, 1), loop.call_later(0.0001, seen.append, 2)
        own: list[asyncio.Handle] = []
        own.append(loop.call_soon(lambda what: (own[0].cancel(), seen.append(what)), 3))
        assert isinstance(soon, asyncio.Handle)
        assert isinstance(timer, asyncio.TimerHandle)
        for handle in (soon, timer):
            assert not handle.cancelled()
            handle.cancel()
            handle.cancel()
            assert handle.cancelled()
            assert "cancelled" in repr(handle)
        loop.call_later(0.0002, seen.append, 4)
        await asyncio.sleep(0.002)
        assert seen == [3, 4]

    loop_run(main)


def test_what_callbacks_hold_is_let_go(loop_run: Any) -> None:
    class Thing:
        pass

    async def main() -> None:
        loop = asyncio.get_running_loop()
        things = [Thing() for _ in range(3)]
        left = [weakref.ref(thing) for thing in things]
        loop.call_soon(id, things[0])
        loop.call_later(1000, id, things[1]).cancel()
        held: Any = [loop.call_soon(id, things[2])]
        held.append(held)
        watched = weakref.ref(held[0])
        await turns(2)
        del things, held
        gc.collect()
        assert [ref() for ref in left] == [None] * 3
        assert watched() is None

    loop_run(main)


def test_an_exception_goes_to_the_handler_of_exceptions(loop_run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        told: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: told.append(context))

        def fails(what: int) -> None:
            raise ValueError(what)

        handle = loop.call_soon(fails, 7)
        await turns(1)
        (context,) = told
        assert isinstance(context["exception"], ValueError)
        assert context["handle"] is handle
        assert "Exception in callback" in context["message"]
        assert "fails(7)" in context["message"]

    loop_run(main)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_an_exit_comes_out_of_the_loop_and_the_rest_follows(loop_run: Any, kind: type[BaseException]) -> None:
    seen: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def exits() -> None:
            raise kind

        loop.call_soon(exits)
        loop.call_soon(seen.append, "the rest")
        await asyncio.sleep(10)

    with pytest.raises(kind):
        loop_run(main)
    assert seen == ["the rest"]  # while the runner cancelled what was left


def test_timers_come_in_order_of_time(loop_run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        seen: list[int] = []
        whens = [(n * 7919) % 500 for n in range(500)]
        timers = [loop.call_at(begin + 0.001 + when * 1e-6, seen.append, when) for when in whens]
        for timer in timers[::3]:
            timer.cancel()
        await asyncio.sleep(0.01)
        assert seen == sorted(when for n, when in enumerate(whens) if n % 3)
        assert timers[1].when() == begin + 0.001 + whens[1] * 1e-6
        assert timers[1] < timers[2] or timers[2] < timers[1]

    loop_run(main)


def test_timers_that_are_cancelled_are_forgotten() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        kept = loop.call_later(500, print)
        timers = [loop.call_later(1000 + n, print) for n in range(1000)]
        left = [weakref.ref(timer) for timer in timers]
        for timer in timers:
            timer.cancel()
        del timer, timers
        await asyncio.sleep(0.001)
        assert not any(ref() for ref in left)
        assert not kept.cancelled()
        kept.cancel()

    libos_asyncio.run(main())


def test_wrong_calls_are_refused(loop_run: Any) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        for call, args, keywords in (
            (loop.call_soon, (), {}),
            (loop.call_soon, (print,), {"colour": 1}),
            (loop.call_later, (1,), {}),
            (loop.call_later, (None, print), {}),
            (loop.call_later, ("soon", print), {}),
            (loop.call_at, (None, print), {}),
        ):
            with pytest.raises(TypeError):
                call(*args, **keywords)
        loop.call_later(delay=1000, callback=print).cancel()
        loop.call_at(when=loop.time() + 1000, callback=print, context=contextvars.Context()).cancel()
        handle = loop.call_soon(callback=int)
        assert not handle.cancelled()

    loop_run(main)


def test_a_closed_loop_refuses(loop_run: Any) -> None:
    async def main() -> Any:
        return asyncio.get_running_loop()

    loop = loop_run(main)
    for call in (lambda: loop.call_soon(print), lambda: loop.call_later(1, print), lambda: loop.call_at(1, print)):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_stop_ends_a_turn_and_what_it_has_added_waits() -> None:
    seen: list[str] = []
    loop = libos_asyncio.new_event_loop()
    try:
        loop.call_soon(lambda: (loop.stop(), loop.call_soon(seen.append, "next")))
        loop.call_soon(seen.append, "this")
        loop.run_forever()
        assert seen == ["this"]
        loop.run_until_complete(asyncio.sleep(0))
        assert seen == ["this", "next"]
    finally:
        loop.close()


def test_debug_mode_looks_closely(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        assert loop.get_debug()
        with pytest.raises(TypeError, match="coroutines cannot be used"):
            loop.call_soon(main)
        with pytest.raises(TypeError, match="callable object was expected"):
            loop.call_later(1, "nothing")
        handle = loop.call_soon(int)
        assert "created at" in repr(handle)
        assert "test_handles.py" in repr(handle)
        assert handle._source_traceback[-1].name == "main"
        assert loop.call_soon_threadsafe(int)._source_traceback[-1].name == "main"
        timer = loop.call_later(1000, int)
        assert timer._source_traceback[-1].name == "main"
        timer.cancel()
        assert "int" in repr(timer)
        with pytest.raises(RuntimeError, match="Non-thread-safe"):
            await asyncio.to_thread(loop.call_soon, int)
        loop.slow_callback_duration = 0.0
        await asyncio.sleep(0)
        loop.set_debug(False)
        assert "created at" not in repr(loop.call_soon(int))

    with caplog.at_level(logging.WARNING, "asyncio"):
        libos_asyncio.run(main(), debug=True)
    assert any("Executing" in record.getMessage() and "took" in record.getMessage() for record in caplog.records)


def test_many_threads_call_soon(loop_run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        seen: list[int] = []

        def call() -> None:
            for n in range(300):
                loop.call_soon_threadsafe(seen.append, n)

        await asyncio.gather(*(asyncio.to_thread(call) for _ in range(4)))
        await turns(2)
        assert sorted(seen) == sorted([*range(300)] * 4)

    loop_run(main)
