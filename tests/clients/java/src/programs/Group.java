package programs;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Uses clients all the time, while ../group kills the leader of three nodes and hands leadership over. ../spring does so, too. */
final class Group {
    static final String MODE = System.getenv("GROUP_MODE");
    private static final Duration PATIENCE = Duration.ofMinutes(1);

    /** INCR, by some client. */
    interface Increment {
        long of(String key) throws Exception;
    }

    static List<String> addresses(String variable) {
        return List.of(System.getenv(variable).split(" "));
    }

    /** Checks that each of these clients follows the leader. */
    static void follow(Map<String, Increment> clients) throws Exception {
        List<Counter> counters = new ArrayList<>();
        clients.forEach((name, client) -> counters.add(new Counter(name + " " + MODE, client)));
        make("kill-leader", counters);
        for (Counter counter : counters) {
            Main.check(counter.name + ": follows the leader after a kill", counter::goesOn);
        }
        make("restart", counters);
        make("transfer", counters);
        for (Counter counter : counters) {
            Main.check(counter.name + ": follows a transfer to the restarted node", counter::goesOn);
        }
    }

    /** Asks ../group for a change once all clients are served. */
    private static void make(String change, List<Counter> counters) throws Exception {
        for (Counter counter : counters) {
            counter.isServed();
            counter.pauseMs = 0;
        }
        System.out.println(change);
        Main.expect(change, new ProcessBuilder(System.getenv("GROUP"), change).inheritIO().start().waitFor(), 0);
    }

    /** Increments a key again and again. A reply that is no higher than an earlier one shows that a change was lost. */
    private static final class Counter {
        final String name;
        private volatile long acknowledged;
        private volatile boolean lost;
        private volatile long pauseMs;
        private volatile Exception failure;

        Counter(String name, Increment client) {
            this.name = name;
            Thread thread = new Thread(() -> run(client), name);
            thread.setDaemon(true);
            thread.start();
        }

        private void run(Increment client) {
            for (long last = 0, at = System.nanoTime();;) {
                try {
                    long value = client.of(name);
                    pauseMs = Math.max(pauseMs, TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - at));
                    lost |= value <= last;
                    last = value;
                    at = System.nanoTime();
                    acknowledged++;
                } catch (Exception error) {
                    failure = error;
                }
                pause();
            }
        }

        void goesOn() {
            isServed();
            System.out.println(name + ": no reply for " + pauseMs + " ms");
            Main.expect("a change was lost", lost, false);
        }

        /** Waits until some more changes are acknowledged. */
        void isServed() {
            long enough = acknowledged + 20, end = System.nanoTime() + PATIENCE.toNanos();
            while (acknowledged < enough) {
                if (System.nanoTime() > end) {
                    throw new AssertionError(name + " finds no leader", failure);
                }
                pause();
            }
        }

        private static void pause() {
            try {
                Thread.sleep(1);
            } catch (InterruptedException error) {
                throw new AssertionError(error);
            }
        }
    }

    private Group() {}
}
