package programs;

import static programs.Main.PORT;
import static programs.Main.check;
import static programs.Main.expect;

import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.CacheFrontend;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Lettuce: one connection that many share, RESP3. */
final class LettucePrograms {
    static void run() {
        RedisClient client = RedisClient.create(RedisURI.create("127.0.0.1", PORT));
        StatefulRedisConnection<String, String> connection = client.connect();
        RedisCommands<String, String> sync = connection.sync();

        check("lettuce: many requests in flight on one connection", () -> {
            RedisAsyncCommands<String, String> async = connection.async();
            sync.del("lettuce:n");
            List<RedisFuture<Long>> replies = new ArrayList<>();
            for (int n = 0; n < 5_000; n++) {
                replies.add(async.incr("lettuce:n"));
            }
            expect("all answered", LettuceFutures.awaitAll(Duration.ofSeconds(60), replies.toArray(RedisFuture[]::new)), true);
            expect("the last", replies.get(4_999).get(), 5_000L);
        });

        check("lettuce: transactions and scripts", () -> {
            sync.multi();
            sync.set("lettuce:a", "1");
            sync.hset("lettuce:h", Map.of("f", "v"));
            TransactionResult result = sync.exec();
            expect("EXEC", result.get(0), "OK");
            String sha = sync.scriptLoad("return {KEYS[1], ARGV[1]}");
            expect("EVALSHA", sync.evalsha(sha, ScriptOutputType.MULTI, new String[] {"k"}, "a"), List.of("k", "a"));
            sync.del("lettuce:h");
        });

        check("lettuce: messages", () -> {
            CountDownLatch got = new CountDownLatch(100);
            StatefulRedisPubSubConnection<String, String> listener = client.connectPubSub();
            listener.addListener(new RedisPubSubAdapter<String, String>() {
                @Override
                public void message(String channel, String message) {
                    got.countDown();
                }
            });
            listener.sync().subscribe("lettuce:news");
            for (int n = 0; n < 100; n++) {
                sync.publish("lettuce:news", "x");
            }
            expect("all came", got.await(30, TimeUnit.SECONDS), true);
            listener.close();
        });

        check("lettuce: a cache that receives invalidations", () -> {
            StatefulRedisConnection<String, String> tracked = client.connect();
            CacheFrontend<String, String> cache = ClientSideCaching.enable(
                    CacheAccessor.forMap(new ConcurrentHashMap<>()), tracked, TrackingArgs.Builder.enabled());
            sync.set("lettuce:cached", "old");
            expect("first", cache.get("lettuce:cached"), "old");
            sync.set("lettuce:cached", "new");
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            while (!"new".equals(cache.get("lettuce:cached"))) {
                expect("the cache is told", System.nanoTime() < end, true);
                Thread.sleep(5);
            }
            tracked.close();
        });
        connection.close();
        client.shutdown(Duration.ZERO, Duration.ofSeconds(5));
    }

    private LettucePrograms() {}
}
