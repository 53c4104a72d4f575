package programs;

import static programs.Main.PORT;
import static programs.Main.check;
import static programs.Main.expect;
import static programs.Main.together;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.springframework.data.domain.Range;
import org.springframework.data.geo.Distance;
import org.springframework.data.geo.Point;
import org.springframework.data.redis.connection.BitFieldSubCommands;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.connection.stream.Consumer;
import org.springframework.data.redis.connection.stream.MapRecord;
import org.springframework.data.redis.connection.stream.ReadOffset;
import org.springframework.data.redis.connection.stream.StreamOffset;
import org.springframework.data.redis.connection.stream.StreamReadOptions;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.DefaultRedisScript;
import org.springframework.data.redis.domain.geo.GeoReference;
import org.springframework.data.redis.domain.geo.Metrics;
import org.springframework.data.redis.listener.ChannelTopic;
import org.springframework.data.redis.listener.RedisMessageListenerContainer;

/** Spring Data Redis: the ways in which shops and gateways use a StringRedisTemplate. */
final class SpringPrograms {
    private static final DefaultRedisScript<Long> ENTER = new DefaultRedisScript<>("""
            local inside = tonumber(redis.call('GET', KEYS[1]) or '0')
            if inside < tonumber(ARGV[1]) then
                redis.call('INCR', KEYS[1])
                redis.call('EXPIRE', KEYS[1], 300)
                return 1
            end
            return 0
            """, Long.class);
    private static final DefaultRedisScript<Long> LEAVE = new DefaultRedisScript<>(
            "return redis.call('INCRBY', KEYS[1], -1)", Long.class);
    private static final DefaultRedisScript<Long> UNLOCK = new DefaultRedisScript<>(
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0", Long.class);
    private static final DefaultRedisScript<Long> SELL = new DefaultRedisScript<>("""
            local stock, buyers = 'spring:stock:' .. ARGV[1], 'spring:buyers:' .. ARGV[1]
            if tonumber(redis.call('GET', stock) or '0') <= 0 then return 1 end
            if redis.call('SISMEMBER', buyers, ARGV[2]) == 1 then return 2 end
            redis.call('INCRBY', stock, -1)
            redis.call('SADD', buyers, ARGV[2])
            redis.call('XADD', 'spring:orders', '*', 'user', ARGV[2], 'voucher', ARGV[1])
            return 0
            """, Long.class);

    static void run() {
        LettuceConnectionFactory factory = new LettuceConnectionFactory(new RedisStandaloneConfiguration("127.0.0.1", PORT));
        factory.afterPropertiesSet();
        factory.start();
        StringRedisTemplate redis = new StringRedisTemplate(factory);
        redis.afterPropertiesSet();

        check("spring: a gate never holds more than its limit", () -> {
            redis.delete("spring:gate");
            AtomicInteger inside = new AtomicInteger(), most = new AtomicInteger(), granted = new AtomicInteger();
            together(16, () -> {
                for (int n = 0; n < 30; n++) {
                    if (redis.execute(ENTER, List.of("spring:gate"), "5") == 1) {
                        most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                        granted.incrementAndGet();
                        inside.decrementAndGet();
                        redis.execute(LEAVE, List.of("spring:gate"));
                    }
                }
                return null;
            });
            expect("at most five", most.get() <= 5 && granted.get() > 0, true);
            expect("all have left", redis.opsForValue().get("spring:gate"), "0");
        });

        check("spring: a flash sale sells its stock, one to each", () -> {
            redis.delete(List.of("spring:buyers:7", "spring:orders"));
            redis.opsForValue().set("spring:stock:7", "50");
            AtomicInteger next = new AtomicInteger();
            List<List<Long>> replies = together(16, () -> {
                List<Long> mine = new ArrayList<>();
                for (int n = 0; n < 10; n++) {
                    // Every second attempt comes from a buyer who has tried before.
                    mine.add(redis.execute(SELL, Collections.emptyList(), "7", "user" + next.getAndIncrement() / 2));
                }
                return mine;
            });
            long sold = replies.stream().flatMap(List::stream).filter(reply -> reply == 0).count();
            expect("sold", sold, 50L);
            expect("left", redis.opsForValue().get("spring:stock:7"), "0");
            expect("buyers", redis.opsForSet().size("spring:buyers:7"), 50L);
            expect("orders", redis.opsForStream().size("spring:orders"), 50L);
        });

        check("spring: orders are processed and acknowledged", () -> {
            redis.opsForStream().createGroup("spring:orders", ReadOffset.from("0"), "g1");
            int worked = 0;
            while (true) {
                List<MapRecord<String, Object, Object>> records = redis.opsForStream().read(Consumer.from("g1", "c1"),
                        StreamReadOptions.empty().count(1).block(Duration.ofMillis(50)),
                        StreamOffset.create("spring:orders", ReadOffset.lastConsumed()));
                if (records == null || records.isEmpty()) {
                    break;
                }
                redis.opsForStream().acknowledge("spring:orders", "g1", records.get(0).getId());
                worked++;
            }
            expect("worked", worked, 50);
            expect("pending", redis.opsForStream().pending("spring:orders", "g1").getTotalPendingMessages(), 0L);
        });

        check("spring: a lock is released by its owner", () -> {
            String owner = UUID.randomUUID().toString();
            expect("taken", redis.opsForValue().setIfAbsent("spring:lock", owner, Duration.ofSeconds(600)), true);
            expect("taken once", redis.opsForValue().setIfAbsent("spring:lock", "other", Duration.ofSeconds(600)), false);
            expect("not by others", redis.execute(UNLOCK, List.of("spring:lock"), "other"), 0L);
            expect("by its owner", redis.execute(UNLOCK, List.of("spring:lock"), owner), 1L);
        });

        check("spring: numbers are issued once", () -> {
            redis.delete("spring:icr:order");
            List<List<Long>> numbers = together(8, () -> {
                List<Long> mine = new ArrayList<>();
                for (int n = 0; n < 100; n++) {
                    mine.add(redis.opsForValue().increment("spring:icr:order"));
                }
                return mine;
            });
            expect("distinct", numbers.stream().flatMap(List::stream).distinct().count(), 800L);
        });

        check("spring: funnels in a hash, likes, feeds, shops, sign-ins", () -> {
            redis.opsForHash().putAll("spring:funnel", Map.of("capacity", "10", "leftQuota", "9", "leakingRate", "0.5"));
            redis.expire("spring:funnel", Duration.ofSeconds(1_810));
            expect("funnel", redis.opsForHash().entries("spring:funnel").size(), 3);
            redis.delete(List.of("spring:likes", "spring:shops", "spring:sign"));
            for (int n = 0; n < 10; n++) {
                redis.opsForZSet().add("spring:likes", "user" + n, n);
            }
            expect("first five", redis.opsForZSet().range("spring:likes", 0, 4).size(), 5);
            Set<?> page = redis.opsForZSet().reverseRangeByScoreWithScores("spring:likes", 0, 8, 1, 3);
            expect("a page", page.size(), 3);
            redis.opsForGeo().add("spring:shops", new Point(120.149192, 30.316078), "1");
            redis.opsForGeo().add("spring:shops", new Point(120.151505, 30.333422), "2");
            var near = redis.opsForGeo().search("spring:shops", GeoReference.fromCoordinate(120.149993, 30.334229),
                    new Distance(1, Metrics.KILOMETERS));
            expect("near", near.getContent().size(), 1);
            redis.opsForValue().setBit("spring:sign", 0, true);
            redis.opsForValue().setBit("spring:sign", 1, true);
            var streak = redis.opsForValue().bitField("spring:sign", BitFieldSubCommands.create()
                    .get(BitFieldSubCommands.BitFieldType.unsigned(2)).valueAt(0));
            expect("sign-ins", streak, List.of(3L));
            expect("scores between", redis.opsForZSet().count("spring:likes", 2, 5), 4L);
            expect("by rank", redis.opsForZSet().rangeByLex("spring:likes", Range.unbounded()).isEmpty(), false);
        });

        check("spring: messages and expired keys reach listeners", () -> {
            redis.getConnectionFactory().getConnection().serverCommands().setConfig("notify-keyspace-events", "Ex");
            CountDownLatch got = new CountDownLatch(10), expired = new CountDownLatch(1);
            RedisMessageListenerContainer container = new RedisMessageListenerContainer();
            container.setConnectionFactory(factory);
            container.addMessageListener((message, pattern) -> got.countDown(), new ChannelTopic("spring:news"));
            container.addMessageListener((message, pattern) -> expired.countDown(), new ChannelTopic("__keyevent@0__:expired"));
            container.afterPropertiesSet();
            container.start();
            for (int n = 0; n < 10; n++) {
                redis.convertAndSend("spring:news", "x");
            }
            redis.opsForValue().set("spring:short", "x", Duration.ofMillis(20));
            expect("messages", got.await(30, TimeUnit.SECONDS), true);
            expect("expired", expired.await(30, TimeUnit.SECONDS), true);
            container.stop();
            container.destroy();
        });
        factory.destroy();
    }

    private SpringPrograms() {}
}
