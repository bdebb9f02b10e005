"""redis-py's asyncio client: python ask_redis.py ADDRESS PORT."""

import asyncio
import sys

from redis.asyncio import Redis


async def main(address, port):
    async with Redis(host=address, port=port) as redis:
        assert await redis.set("key", "value" * 20_000)
        assert await redis.get("key") == b"value" * 20_000
        async with redis.pipeline() as pipe:
            for i in range(100):
                pipe.incrby("sum", i)
            assert (await pipe.execute())[-1] == sum(range(100))
        assert await asyncio.gather(*(redis.incr("n") for _ in range(50)))
        assert await redis.get("n") == b"50"
        async with redis.pubsub() as heard:
            await heard.subscribe("news")
            assert (await heard.get_message(timeout=20))["type"] == "subscribe"
            assert await redis.publish("news", "hello") == 1
            assert (await heard.get_message(timeout=20))["data"] == b"hello"
    print("asked")


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
