"""redis-py, as services use it: the scenarios of gates, locks, stock and streams, and the commands that the library itself sends."""

import threading
import time

import redis
from redis.cache import CacheConfig

from holds import PORT, fails_with, run

GATE = """
local current = tonumber(redis.call('get', KEYS[1]) or '0')
if current < tonumber(ARGV[1]) then
    redis.call('incr', KEYS[1])
    redis.call('pexpire', KEYS[1], ARGV[2])
    return current + 1
end
return 0
"""


def client(**options):
    return redis.Redis(host="127.0.0.1", port=PORT, decode_responses=True, **options)


def strings_and_expiry():
    r = client()
    assert r.set("py:a", "1", px=60_000) is True
    assert 0 < r.pttl("py:a") <= 60_000
    assert r.set("py:a", "2", nx=True) is None
    assert r.set("py:a", "3", get=True) == "1"
    assert r.incrby("py:a", 4) == 7
    assert r.getex("py:a", persist=True) == "7" and r.ttl("py:a") == -1
    assert r.mset({"py:b": "x", "py:c": "y"}) and r.mget("py:a", "py:b", "py:none") == ["7", "x", None]
    assert r.delete("py:a", "py:b", "py:c") == 3
    fails_with("WRONGTYPE", lambda: (r.rpush("py:list", "1"), r.incr("py:list")))
    r.delete("py:list")


def collections_in_both_protocols():
    for protocol in (2, 3):
        r = client(protocol=protocol)
        r.delete("py:h", "py:s", "py:z", "py:l", "py:g")
        assert r.hset("py:h", mapping={"a": "1", "b": "2"}) == 2
        assert r.hgetall("py:h") == {"a": "1", "b": "2"}
        assert r.sadd("py:s", "x", "y") == 2 and r.smembers("py:s") == {"x", "y"}
        assert r.zadd("py:z", {"one": 1, "two": 2.5}) == 2
        assert [tuple(pair) for pair in r.zrange("py:z", 0, -1, withscores=True)] == [("one", 1.0), ("two", 2.5)]
        assert r.zscore("py:z", "two") == 2.5
        assert r.rpush("py:l", 1, 2, 3) == 3 and r.lrange("py:l", 0, -1) == ["1", "2", "3"]
        assert r.geoadd("py:g", (13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania")) == 2
        assert round(r.geodist("py:g", "Palermo", "Catania", "km")) == 166
        assert sorted(key for key in r.scan_iter("py:?", count=3)) == ["py:g", "py:h", "py:l", "py:s", "py:z"]


def pipelines_and_transactions():
    r = client()
    r.set("py:stock", 10)

    def sell(pipe):
        left = int(pipe.get("py:stock"))
        pipe.multi()
        pipe.set("py:stock", left - 1)

    assert r.transaction(sell, "py:stock") == [True]
    with r.pipeline() as pipe:
        pipe.watch("py:stock")
        r.incr("py:stock")
        pipe.multi()
        pipe.set("py:stock", 0)
        try:
            pipe.execute()
            raise AssertionError("the transaction must fail: its key has changed")
        except redis.WatchError:
            pass
    pipe = r.pipeline(transaction=False)
    for _ in range(5_000):
        pipe.incr("py:stock")
    assert pipe.execute()[-1] == 5_010


def scripts_by_hash():
    r = client()
    r.script_flush()
    r.delete("py:gate")
    gate = r.register_script(GATE)
    # The first call finds the script missing, and the library sends it.
    assert [gate(keys=["py:gate"], args=[3, 60_000]) for _ in range(5)] == [1, 2, 3, 0, 0]
    assert r.script_exists(gate.sha) == [True]
    r.function_flush()
    r.function_load("#!lua name=py\nredis.register_function('py_add', function(keys, args) return redis.call('incrby', keys[1], args[1]) end)")
    assert r.fcall("py_add", 1, "py:gate", 10) == 13
    fails_with("Unknown Redis command called from script", lambda: r.eval("return redis.call('nonesuch')", 0))


def locks_exclude():
    r = client()
    shared = {"inside": 0, "most": 0, "done": 0}

    def work():
        mine = client()
        for _ in range(5):
            with mine.lock("py:lock", timeout=20, blocking_timeout=60, sleep=0.001):
                shared["inside"] += 1
                shared["most"] = max(shared["most"], shared["inside"])
                time.sleep(0.001)
                shared["inside"] -= 1
                shared["done"] += 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert shared == {"inside": 0, "most": 1, "done": 40}, shared
    assert r.exists("py:lock") == 0


def publish_and_subscribe():
    for protocol in (2, 3):
        r = client(protocol=protocol)
        listener = client(protocol=protocol).pubsub()
        listener.subscribe("py:news")
        listener.psubscribe("py:n*")
        listener.ssubscribe("py:shard")
        expected = {"subscribe", "psubscribe", "ssubscribe"}
        assert {listener.get_message(timeout=10)["type"] for _ in range(3)} == expected
        assert r.publish("py:news", "hello") == 2 and r.spublish("py:shard", "there") == 1
        got = [listener.get_message(timeout=10) for _ in range(2)]
        assert sorted((m["type"], m["data"]) for m in got) == [("message", "hello"), ("pmessage", "hello")], got
        shard = listener.get_sharded_message(timeout=10) if hasattr(listener, "get_sharded_message") else listener.get_message(timeout=10)
        assert (shard["type"], shard["data"]) == ("smessage", "there"), shard
        listener.close()


def streams_and_groups():
    r = client()
    r.delete("py:orders")
    r.xgroup_create("py:orders", "g1", id="0", mkstream=True)
    ids = [r.xadd("py:orders", {"order": n}) for n in range(3)]
    read = r.xreadgroup("g1", "c1", {"py:orders": ">"}, count=2, block=2_000)
    entries = read[0][1] if isinstance(read, list) else read["py:orders"]
    entries = entries[0] if entries and isinstance(entries[0], list) else entries
    assert [entry[0] for entry in entries] == ids[:2]
    assert r.xack("py:orders", "g1", ids[0]) == 1
    assert r.xpending("py:orders", "g1")["pending"] == 1
    claimed = r.xautoclaim("py:orders", "g1", "c2", min_idle_time=0)
    assert [entry[0] for entry in claimed[1]] == [ids[1]]
    assert r.xinfo_stream("py:orders")["length"] == 3


def blocking_calls():
    r = client()
    r.delete("py:queue")
    got = []
    thread = threading.Thread(target=lambda: got.append(client().blpop("py:queue", timeout=30)))
    thread.start()
    while not any(int(c.get("idle", 0)) >= 0 and c.get("cmd") == "blpop" for c in r.client_list()):
        time.sleep(0.01)
    r.rpush("py:queue", "job")
    thread.join()
    assert tuple(got[0]) == ("py:queue", "job")


def keyspace_notifications():
    r = client()
    r.config_set("notify-keyspace-events", "KEA")
    listener = client().pubsub()
    listener.psubscribe("__keyspace@0__:py:*")
    assert listener.get_message(timeout=10)["type"] == "psubscribe"
    r.set("py:noted", "1", px=20)
    seen = [listener.get_message(timeout=10)["data"] for _ in range(3)]
    assert seen == ["set", "expire", "expired"], seen
    r.config_set("notify-keyspace-events", "")
    listener.close()


def cached_reads_are_invalidated():
    other = client()
    other.set("py:cached", "old")
    cached = client(protocol=3, cache_config=CacheConfig())
    assert cached.get("py:cached") == "old" and cached.get("py:cached") == "old"
    other.set("py:cached", "new")
    deadline = time.time() + 30
    while cached.get("py:cached") != "new":
        assert time.time() < deadline, "the cache was not told of the change"
        time.sleep(0.01)


def users_may_do_only_what_their_rules_allow():
    r = client()
    r.acl_setuser("py", enabled=True, passwords=["+secret"], keys=["py:*"], categories=["+@read"], commands=["+set"], reset=True)
    mine = client(username="py", password="secret")
    assert mine.set("py:mine", "1") and mine.get("py:mine") == "1"
    fails_with("No permissions to access a key", lambda: mine.get("other"))
    fails_with("User py has no permissions to run the 'del' command", lambda: mine.delete("py:mine"))
    fails_with("invalid username-password pair", lambda: client(username="py", password="wrong").ping())
    assert "py" in r.acl_users() and r.acl_getuser("py")["enabled"] is True
    assert r.acl_deluser("py") == 1


def the_server_describes_itself():
    r = client()
    info = r.info()
    assert info["redis_mode"] == "standalone" and info["connected_clients"] >= 1
    assert r.ping() and r.info("commandstats")["cmdstat_ping"]["calls"] >= 1
    assert r.client_setname("py") and r.client_getname() == "py" and r.client_info()["name"] == "py"
    assert r.config_get("maxmemory*")["maxmemory"] is not None
    assert r.slowlog_len() >= 0 and r.memory_usage("py:h") > 0 and r.dbsize() > 0
    assert r.latency_latest() is not None and r.command_count() > 200
    assert r.role()[0] == "master"


run(
    "redis-py",
    [
        strings_and_expiry,
        collections_in_both_protocols,
        pipelines_and_transactions,
        scripts_by_hash,
        locks_exclude,
        publish_and_subscribe,
        streams_and_groups,
        blocking_calls,
        keyspace_notifications,
        cached_reads_are_invalidated,
        users_may_do_only_what_their_rules_allow,
        the_server_describes_itself,
    ],
)
