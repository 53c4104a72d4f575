package programs;

import static programs.Main.PORT;
import static programs.Main.check;
import static programs.Main.expect;
import static programs.Main.together;

import com.baomidou.lock.LockInfo;
import com.baomidou.lock.LockTemplate;
import com.baomidou.lock.executor.RedisTemplateLockExecutor;
import com.baomidou.lock.spring.boot.autoconfigure.Lock4jProperties;
import io.github.bucket4j.BucketConfiguration;
import io.github.bucket4j.distributed.BucketProxy;
import io.github.bucket4j.redis.lettuce.Bucket4jLettuce;
import io.lettuce.core.RedisClient;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import java.time.Duration;
import java.time.Instant;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.cloud.gateway.filter.ratelimit.RedisRateLimiter;
import org.springframework.core.io.ClassPathResource;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.ReactiveStringRedisTemplate;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.DefaultRedisScript;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;

/** Libraries that build locks and limits on one of the clients. */
final class LibraryPrograms {
    private static final int THREADS = 16;

    static void run() {
        check("shedlock: a job has one lock, which is extended and given back", LibraryPrograms::locks);
        for (RedisLockType type : RedisLockType.values()) {
            check("spring integration: two instances take turns by " + type, () -> turns(type));
        }
        check("lock4j: one holder at a time, and a lease that is renewed", LibraryPrograms::renewed);
        check("bucket4j: a bucket admits no more than its capacity", LibraryPrograms::limits);
        check("spring cloud gateway: a route admits no more than its burst", LibraryPrograms::requests);
    }

    private static void locks() {
        LettuceConnectionFactory factory = new LettuceConnectionFactory(new RedisStandaloneConfiguration("127.0.0.1", PORT));
        factory.start();
        try {
            RedisLockProvider provider = new RedisLockProvider(factory, "tests");
            SimpleLock lock = provider.lock(job()).orElseThrow();
            expect("a second one", provider.lock(job()), Optional.empty());
            SimpleLock extended = lock.extend(Duration.ofMinutes(5), Duration.ZERO).orElseThrow();
            expect("another second one", provider.lock(job()), Optional.empty());
            extended.unlock();
            provider.lock(job()).orElseThrow().unlock();
        } finally {
            factory.destroy();
        }
    }

    private static LockConfiguration job() {
        return new LockConfiguration(Instant.now(), "report", Duration.ofMinutes(1), Duration.ZERO);
    }

    /** Two instances of a program, with several threads each, count with a lock around what is not atomic. */
    private static void turns(RedisLockType type) throws Exception {
        LettuceConnectionFactory factory = new LettuceConnectionFactory(new RedisStandaloneConfiguration("127.0.0.1", PORT));
        factory.start();
        List<RedisLockRegistry> instances = List.of(new RedisLockRegistry(factory, "tests"), new RedisLockRegistry(factory, "tests"));
        instances.forEach(instance -> instance.setRedisLockType(type));
        int[] count = {0};
        AtomicInteger next = new AtomicInteger();
        try {
            together(THREADS, () -> {
                Lock lock = instances.get(next.getAndIncrement() % 2).obtain("count");
                lock.lock();
                try {
                    int before = count[0];
                    Thread.sleep(1);
                    count[0] = before + 1;
                } finally {
                    lock.unlock();
                }
                return null;
            });
            expect("counted", count[0], THREADS);
            Lock held = instances.get(0).obtain("held");
            held.lock();
            expect("while it is held", instances.get(1).obtain("held").tryLock(20, TimeUnit.MILLISECONDS), false);
            held.unlock();
            expect("when it is free", instances.get(1).obtain("held").tryLock(10, TimeUnit.SECONDS), true);
            instances.get(1).obtain("held").unlock();
        } finally {
            instances.forEach(RedisLockRegistry::destroy);
            factory.destroy();
        }
    }

    private static void renewed() throws Exception {
        LettuceConnectionFactory factory = new LettuceConnectionFactory(new RedisStandaloneConfiguration("127.0.0.1", PORT));
        factory.start();
        try {
            Lock4jProperties properties = new Lock4jProperties();
            properties.setExpire(3_000L);
            LockTemplate template = new LockTemplate();
            template.setProperties(properties);
            template.setExecutors(List.of(new RedisTemplateLockExecutor(new StringRedisTemplate(factory), properties)));
            template.afterPropertiesSet();
            int[] count = {0};
            together(THREADS, () -> {
                LockInfo lock = template.lock("lock4j:count", 30_000, 30_000);
                int before = count[0];
                Thread.sleep(1);
                count[0] = before + 1;
                expect("released", template.releaseLock(lock), true);
                return null;
            });
            expect("counted", count[0], THREADS);
            LockInfo held = template.lock("lock4j:held", -1, 30_000);
            Thread.sleep(4_000);
            expect("while it is held", template.lock("lock4j:held", 30_000, 20), null);
            expect("given back", template.releaseLock(held), true);
            expect("given back twice", template.releaseLock(held), false);
        } finally {
            factory.destroy();
        }
    }

    private static void limits() throws Exception {
        RedisClient client = RedisClient.create("redis://127.0.0.1:" + PORT);
        try (StatefulRedisConnection<byte[], byte[]> connection = client.connect(ByteArrayCodec.INSTANCE)) {
            byte[] key = "bucket4j:ann".getBytes();
            connection.sync().del(key);
            BucketConfiguration tenAnHour = BucketConfiguration.builder()
                    .addLimit(limit -> limit.capacity(10).refillIntervally(10, Duration.ofHours(1))).build();
            BucketProxy bucket = Bucket4jLettuce.casBasedBuilder(connection).build().builder().build(key, () -> tenAnHour);
            expect("admitted", Collections.frequency(together(THREADS, () -> bucket.tryConsume(1)), true), 10);
        } finally {
            client.shutdown();
        }
    }

    /** A call costs 60 tokens, and a second brings one. A limiter that fails admits everybody. */
    private static void requests() throws Exception {
        LettuceConnectionFactory factory = new LettuceConnectionFactory(new RedisStandaloneConfiguration("127.0.0.1", PORT));
        factory.start();
        try {
            DefaultRedisScript<List<Long>> script = new DefaultRedisScript<>();
            script.setLocation(new ClassPathResource("META-INF/scripts/request_rate_limiter.lua"));
            @SuppressWarnings({"unchecked", "rawtypes"})
            Class<List<Long>> numbers = (Class) List.class;
            script.setResultType(numbers);
            RedisRateLimiter limiter = new RedisRateLimiter(new ReactiveStringRedisTemplate(factory), script, null);
            limiter.getConfig().put("route", new RedisRateLimiter.Config().setReplenishRate(1).setBurstCapacity(600).setRequestedTokens(60));
            expect("admitted",
                    Collections.frequency(together(THREADS, () -> limiter.isAllowed("route", "ann").block().isAllowed()), true), 10);
        } finally {
            factory.destroy();
        }
    }

    private LibraryPrograms() {}
}
