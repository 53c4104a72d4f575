"""redis-py's asyncio client: many tasks over few connections."""

import asyncio

from redis import asyncio as redis

from holds import URL, run


def many_tasks_share_connections():
    async def program():
        pool = redis.BlockingConnectionPool.from_url(URL, max_connections=20, timeout=60)
        r = redis.Redis(connection_pool=pool)
        await r.delete("aio:n")
        await asyncio.gather(*(r.incr("aio:n") for _ in range(2_000)))
        assert int(await r.get("aio:n")) == 2_000
        await pool.disconnect()

    asyncio.run(program())


def messages_arrive_in_order():
    async def program():
        r = redis.from_url(URL, decode_responses=True)
        async with r.pubsub() as listener:
            await listener.subscribe("aio:news")
            await listener.get_message(timeout=10)
            for n in range(500):
                await r.publish("aio:news", n)
            got = []
            while len(got) < 500:
                message = await listener.get_message(ignore_subscribe_messages=True, timeout=10)
                got.append(int(message["data"]))
            assert got == list(range(500))
        await r.aclose()

    asyncio.run(program())


run("redis-py asyncio", [many_tasks_share_connections, messages_arrive_in_order])
