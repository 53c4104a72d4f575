package programs;

import static programs.Main.PORT;
import static programs.Main.check;
import static programs.Main.expect;
import static programs.Main.together;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.redisson.Redisson;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RDelayedQueue;
import org.redisson.api.RLock;
import org.redisson.api.RMapCache;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson's objects, each used by 16 threads; the checks look for events that must never happen. */
final class RedissonPrograms {
    private static final int THREADS = 16;

    static void run() {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + PORT).setConnectionPoolSize(32).setConnectionMinimumIdleSize(4);
        RedissonClient redisson = Redisson.create(config);

        check("redisson: a lock admits one", () -> exclusive(redisson.getLock("redisson:lock"), 20));
        check("redisson: a fair lock admits one", () -> exclusive(redisson.getFairLock("redisson:fair"), 5));

        check("redisson: a lock counts its entries, and expires by itself", () -> {
            RLock lock = redisson.getLock("redisson:reentrant");
            lock.lock(10, TimeUnit.SECONDS);
            lock.lock(10, TimeUnit.SECONDS);
            lock.unlock();
            expect("still held", lock.isHeldByCurrentThread(), true);
            lock.unlock();
            expect("free", lock.isLocked(), false);
            lock.lock(50, TimeUnit.MILLISECONDS);
            List<Boolean> taken = together(1, () -> redisson.getLock("redisson:reentrant").tryLock(30, 60, TimeUnit.SECONDS));
            expect("taken by another when its lease has ended", taken, List.of(true));
            lock.forceUnlock();
        });

        check("redisson: readers share, a writer is alone", () -> {
            RReadWriteLock lock = redisson.getReadWriteLock("redisson:rw");
            AtomicInteger readers = new AtomicInteger(), writers = new AtomicInteger(), wrong = new AtomicInteger();
            AtomicInteger number = new AtomicInteger();
            together(THREADS, () -> {
                boolean writes = number.getAndIncrement() % 4 == 0;
                for (int n = 0; n < 5; n++) {
                    RLock mine = writes ? lock.writeLock() : lock.readLock();
                    mine.lock(10, TimeUnit.SECONDS);
                    (writes ? writers : readers).incrementAndGet();
                    if (writers.get() > 1 || (writers.get() == 1 && readers.get() > 0)) {
                        wrong.incrementAndGet();
                    }
                    (writes ? writers : readers).decrementAndGet();
                    mine.unlock();
                }
                return null;
            });
            expect("writers beside others", wrong.get(), 0);
        });

        check("redisson: a semaphore of three admits three", () -> {
            RSemaphore semaphore = redisson.getSemaphore("redisson:semaphore");
            semaphore.delete();
            semaphore.trySetPermits(3);
            AtomicInteger inside = new AtomicInteger(), most = new AtomicInteger();
            together(THREADS, () -> {
                for (int n = 0; n < 10; n++) {
                    semaphore.acquire();
                    most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                    inside.decrementAndGet();
                    semaphore.release();
                }
                return null;
            });
            expect("at most three", most.get() <= 3, true);
            expect("all returned", semaphore.availablePermits(), 3);
        });

        check("redisson: permits with leases", () -> {
            RPermitExpirableSemaphore semaphore = redisson.getPermitExpirableSemaphore("redisson:permits");
            semaphore.delete();
            semaphore.trySetPermits(2);
            AtomicInteger inside = new AtomicInteger(), most = new AtomicInteger();
            together(THREADS, () -> {
                for (int n = 0; n < 5; n++) {
                    String permit = semaphore.acquire(10, TimeUnit.SECONDS);
                    most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                    inside.decrementAndGet();
                    semaphore.release(permit);
                }
                return null;
            });
            expect("at most two", most.get() <= 2, true);
            semaphore.acquire(50, TimeUnit.MILLISECONDS);
            semaphore.acquire(50, TimeUnit.MILLISECONDS);
            String third = semaphore.tryAcquire(30, 60, TimeUnit.SECONDS);
            expect("free again when a lease has ended", third != null, true);
        });

        check("redisson: a rate limiter admits no more than its rate", () -> {
            RRateLimiter limiter = redisson.getRateLimiter("redisson:rate");
            limiter.delete();
            limiter.trySetRate(RateType.OVERALL, 20, Duration.ofMinutes(10));
            List<Integer> granted = together(THREADS, () -> {
                int mine = 0;
                for (int n = 0; n < 10; n++) {
                    mine += limiter.tryAcquire() ? 1 : 0;
                }
                return mine;
            });
            expect("granted", granted.stream().mapToInt(Integer::intValue).sum(), 20);
        });

        check("redisson: a delayed queue delivers each element once", () -> {
            RBlockingQueue<Integer> queue = redisson.getBlockingQueue("redisson:delayed");
            queue.clear();
            RDelayedQueue<Integer> delayed = redisson.getDelayedQueue(queue);
            for (int n = 0; n < 100; n++) {
                delayed.offer(n, n % 5 * 20L, TimeUnit.MILLISECONDS);
            }
            List<Integer> got = Collections.synchronizedList(new ArrayList<>());
            CountDownLatch left = new CountDownLatch(100);
            for (int thread = 0; thread < 4; thread++) {
                Thread taker = new Thread(() -> {
                    try {
                        while (left.getCount() > 0) {
                            Integer n = queue.poll(1, TimeUnit.SECONDS);
                            if (n != null) {
                                got.add(n);
                                left.countDown();
                            }
                        }
                    } catch (InterruptedException ended) {
                        Thread.currentThread().interrupt();
                    }
                });
                taker.setDaemon(true);
                taker.start();
            }
            expect("all came", left.await(60, TimeUnit.SECONDS), true);
            expect("each once", got.stream().distinct().count(), 100L);
            delayed.destroy();
        });

        check("redisson: a map whose entries expire", () -> {
            RMapCache<String, String> map = redisson.getMapCache("redisson:map");
            map.put("short", "x", 30, TimeUnit.MILLISECONDS);
            map.put("long", "y", 10, TimeUnit.MINUTES);
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            while (map.get("short") != null) {
                expect("the entry ends", System.nanoTime() < end, true);
                Thread.sleep(5);
            }
            expect("the other stays", map.get("long"), "y");
            map.destroy();
        });

        check("redisson: counters shared by many threads", () -> {
            RAtomicLong counter = redisson.getAtomicLong("redisson:counter");
            counter.set(0);
            together(THREADS, () -> {
                for (int n = 0; n < 100; n++) {
                    counter.incrementAndGet();
                }
                return null;
            });
            expect("the sum", counter.get(), 100L * THREADS);
        });
        redisson.shutdown(0, 5, TimeUnit.SECONDS);
    }

    private static void exclusive(RLock lock, int times) throws Exception {
        AtomicInteger inside = new AtomicInteger(), most = new AtomicInteger(), done = new AtomicInteger();
        together(THREADS, () -> {
            for (int n = 0; n < times; n++) {
                lock.lock();
                try {
                    most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                    done.incrementAndGet();
                    inside.decrementAndGet();
                } finally {
                    lock.unlock();
                }
            }
            return null;
        });
        expect("inside at once", most.get(), 1);
        expect("entered", done.get(), THREADS * times);
        expect("free in the end", lock.isLocked(), false);
    }

    private RedissonPrograms() {}
}
