package programs;

import static programs.Main.PORT;
import static programs.Main.check;
import static programs.Main.expect;
import static programs.Main.together;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.params.XReadGroupParams;

/** Jedis: a pool of blocking connections. */
final class JedisPrograms {
    static void run() {
        RedisClient jedis = RedisClient.create("127.0.0.1", PORT);

        check("jedis: pipelines and transactions", () -> {
            jedis.del("jedis:n", "jedis:list");
            try (Pipeline pipeline = (Pipeline) jedis.pipelined()) {
                Response<Long> last = null;
                for (int n = 0; n < 5_000; n++) {
                    last = pipeline.incr("jedis:n");
                }
                pipeline.sync();
                expect("increments", last.get(), 5_000L);
            }
            try (AbstractTransaction transaction = jedis.multi()) {
                transaction.incr("jedis:n");
                transaction.rpush("jedis:list", "a", "b");
                expect("EXEC", transaction.exec(), List.of(5_001L, 2L));
            }
            try {
                jedis.incr("jedis:list");
                throw new AssertionError("INCR of a list must fail");
            } catch (JedisDataException error) {
                expect("its error", error.getMessage().startsWith("WRONGTYPE"), true);
            }
        });

        check("jedis: locks that only their owners release", () -> {
            String unlock = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
            AtomicInteger inside = new AtomicInteger(), most = new AtomicInteger();
            List<Integer> released = together(8, () -> {
                String owner = Thread.currentThread().getName();
                int done = 0;
                while (done < 5) {
                    if (jedis.set("jedis:lock", owner, SetParams.setParams().nx().px(60_000)) == null) {
                        Thread.sleep(1);
                        continue;
                    }
                    most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                    inside.decrementAndGet();
                    done += ((Long) jedis.eval(unlock, List.of("jedis:lock"), List.of(owner))).intValue();
                }
                return done;
            });
            expect("inside at once", most.get(), 1);
            expect("released", released.stream().mapToInt(Integer::intValue).sum(), 40);
        });

        check("jedis: messages", () -> {
            CountDownLatch ready = new CountDownLatch(1), got = new CountDownLatch(100);
            JedisPubSub listener = new JedisPubSub() {
                @Override
                public void onSubscribe(String channel, int count) {
                    ready.countDown();
                }

                @Override
                public void onMessage(String channel, String message) {
                    got.countDown();
                }
            };
            Thread thread = new Thread(() -> {
                try (Jedis connection = new Jedis("127.0.0.1", PORT)) {
                    connection.subscribe(listener, "jedis:news");
                }
            });
            thread.start();
            ready.await(30, TimeUnit.SECONDS);
            for (int n = 0; n < 100; n++) {
                jedis.publish("jedis:news", "x");
            }
            expect("all came", got.await(30, TimeUnit.SECONDS), true);
            listener.unsubscribe();
            thread.join(30_000);
        });

        check("jedis: streams", () -> {
            jedis.del("jedis:orders");
            jedis.xgroupCreate("jedis:orders", "g", new StreamEntryID(0, 0), true);
            StreamEntryID id = jedis.xadd("jedis:orders", StreamEntryID.NEW_ENTRY, Map.of("order", "1"));
            var read = jedis.xreadGroup("g", "c", XReadGroupParams.xReadGroupParams().count(1).block(2_000),
                    Map.of("jedis:orders", StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY));
            expect("read", read.get(0).getValue().get(0).getID(), id);
            expect("acknowledged", jedis.xack("jedis:orders", "g", id), 1L);
        });
        jedis.close();
    }

    private JedisPrograms() {}
}
