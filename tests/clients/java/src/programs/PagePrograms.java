package programs;

import static programs.Main.PORT;
import static programs.Main.check;
import static programs.Main.expect;

import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.util.SafeEncoder;

/** The snippets of the pages, unchanged except for the port: the script "run" has turned them into the class Pages. */
final class PagePrograms {
    private static final String OVERVIEW = "docs/coordination/README.md";
    private static final Pattern WAITS = Pattern.compile("\"([A-Z.]+)\"[^\"]*\"([^\"]+)\".*\"BLOCK\"");

    private static final io.lettuce.core.RedisClient LETTUCE = io.lettuce.core.RedisClient.create("redis://127.0.0.1:" + PORT);

    static void run() {
        try (Jedis own = new Jedis("127.0.0.1", PORT)) {
            // The overview opens the connection that the other snippets use.
            Pages.ALL.stream().filter(page -> page.name().startsWith(OVERVIEW)).forEach(page -> shows(page, own));
            Pages.ALL.stream().filter(page -> !page.name().startsWith(OVERVIEW)).forEach(page -> shows(page, own));
        }
        Pages.connection.close();
        LETTUCE.shutdown();
    }

    /** Runs a snippet in the state that its page describes before it. A snippet that waits is first run in vain. */
    private static void shows(Pages.Page page, Jedis own) {
        check("pages: " + page.name(), () -> {
            own.flushAll();
            own.set("stock:42", "10");
            String token = send(own, "LOCK.ACQUIRE", "lock:report", "worker-7:3f2a", "PX", "60000").get(2).toString();
            Matcher waits = WAITS.matcher(page.text());
            if (waits.find()) {
                send(own, "LOCK.BREAK", waits.group(2));
                send(own, "LOCK.ACQUIRE", waits.group(2), "somebody else", "PX", "60000");
                long before = calls(own, waits.group(1));
                expect("granted", of(page, token), false);
                expect("calls", calls(own, waits.group(1)), before + 1);
                send(own, "LOCK.BREAK", waits.group(2));
            }
            expect("refused", Boolean.FALSE.equals(of(page, token)), false);
        });
    }

    private static Boolean of(Pages.Page page, String token) {
        return page.run().of(Pages.connection, LETTUCE, "job-4711", "worker-7:3f2a", "77", token);
    }

    private static List<?> send(Jedis own, String command, String... args) {
        return (List<?>) SafeEncoder.encodeObject(own.sendCommand(() -> command.getBytes(), args));
    }

    private static long calls(Jedis own, String command) {
        Matcher calls = Pattern.compile("cmdstat_" + command.toLowerCase() + ":calls=(\\d+)").matcher(own.info("commandstats"));
        return calls.find() ? Long.parseLong(calls.group(1)) : 0;
    }

    private PagePrograms() {}
}
