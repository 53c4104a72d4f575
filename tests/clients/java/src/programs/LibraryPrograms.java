package programs;

import static programs.Main.PORT;
import static programs.Main.check;
import static programs.Main.expect;
import static programs.Main.together;

import io.github.bucket4j.BucketConfiguration;
import io.github.bucket4j.distributed.BucketProxy;
import io.github.bucket4j.redis.lettuce.Bucket4jLettuce;
import io.lettuce.core.RedisClient;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import java.time.Duration;
import java.time.Instant;
import java.util.Collections;
import java.util.Optional;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

/** Libraries that build locks and limits on one of the clients. */
final class LibraryPrograms {
    private static final int THREADS = 16;

    static void run() {
        check("shedlock: a job has one lock, which is extended and given back", LibraryPrograms::locks);
        check("bucket4j: a bucket admits no more than its capacity", LibraryPrograms::limits);
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

    private LibraryPrograms() {}
}
