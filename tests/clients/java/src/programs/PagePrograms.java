package programs;

import static programs.Main.PORT;
import static programs.Main.check;
import static programs.Main.expect;

import java.util.List;
import redis.clients.jedis.Jedis;

/** The snippets of the pages of docs/coordination, as they stand there: the script "run" has made them into the class Pages. */
final class PagePrograms {
    static void run() {
        check("docs/coordination in Java: what the pages show", () -> {
            try (Jedis jedis = new Jedis("127.0.0.1", PORT)) {
                for (Pages.Page page : Pages.ALL.values()) {
                    jedis.flushAll();
                    jedis.set("stock:42", "10");
                    List<?> lock = (List<?>) jedis.sendCommand(
                            () -> "LOCK.ACQUIRE".getBytes(), "lock:report", "worker-7:3f2a", "PX", "30000");
                    page.run(jedis, "job-4711", "worker-7:3f2a", "77", String.valueOf(lock.get(2)));
                }
                expect("snippets in Java", Pages.ALL.size() >= 6, true);
            }
        });
    }
}
