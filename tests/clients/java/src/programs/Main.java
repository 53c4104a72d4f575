package programs;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Programs with Jedis, Lettuce, Redisson, Spring Data Redis, and libraries on these. Each prints "ok NAME" if it holds. Beside the nodes of
 * ../group, those run that follow a leader.
 */
public final class Main {
    static final int PORT = Integer.parseInt(System.getenv("PORT"));
    private static boolean failed;

    interface Check {
        void run() throws Exception;
    }

    public static void main(String[] args) {
        if (Group.MODE != null) {
            try {
                GroupPrograms.run();
            } catch (Throwable failure) {
                failed = true;
                failure.printStackTrace(System.out);
            }
        } else {
            JedisPrograms.run();
            LettucePrograms.run();
            RedissonPrograms.run();
            SpringPrograms.run();
            LibraryPrograms.run();
            PagePrograms.run();
        }
        System.exit(failed ? 1 : 0);
    }

    /** Runs a check and says whether it holds. */
    static void check(String name, Check check) {
        try {
            check.run();
            System.out.println("ok " + name);
        } catch (Throwable failure) {
            failed = true;
            System.out.println("FAILED " + name);
            failure.printStackTrace(System.out);
        }
    }

    static void expect(String what, Object got, Object want) {
        if (!Objects.equals(got, want)) {
            throw new AssertionError(what + ": got " + got + ", want " + want);
        }
    }

    /** Runs one task on many threads at once, and returns their results. */
    static <T> List<T> together(int threads, Callable<T> task) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            List<Future<T>> futures = new ArrayList<>();
            for (int n = 0; n < threads; n++) {
                futures.add(pool.submit(task));
            }
            List<T> results = new ArrayList<>();
            for (Future<T> future : futures) {
                results.add(future.get());
            }
            return results;
        } finally {
            pool.shutdownNow();
        }
    }

    private Main() {}
}
