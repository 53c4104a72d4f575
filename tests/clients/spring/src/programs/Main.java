package programs;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.data.redis.RedisSystemException;
import org.springframework.data.redis.connection.jedis.JedisConnectionFactory;
import org.springframework.data.redis.core.RedisCallback;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.RedisScript;

/**
 * The statements of docs/guides/spring.md, in an application that Spring Boot configures. Each prints "ok NAME" if it holds. Beside the
 * nodes of ../group, applications follow the leader.
 */
@EnableAutoConfiguration
public class Main {
    private static final Pattern WAITS = Pattern.compile("\"([A-Z.]+)\"[^\"]*\"([^\"]+)\".*\"BLOCK\"", Pattern.DOTALL);
    private static boolean failed;

    interface Check {
        void run() throws Exception;
    }

    public static void main(String[] args) {
        String boot = "Spring Boot " + args[0].replaceAll("\\.\\d+$", "");
        String server = "spring.data.redis.port=" + System.getenv("PORT"), database = "spring.data.redis.database=" + args[1];
        try {
            if (Group.MODE == null) {
                asPagesSay(boot, server, database);
            } else {
                followsLeader(boot);
            }
        } catch (Throwable failure) {
            failed = true;
            failure.printStackTrace(System.out);
        }
        System.exit(failed ? 1 : 0);
    }

    private static void asPagesSay(String boot, String server, String database) {
        try (ConfigurableApplicationContext lettuce = started("lettuce", server, database);
                ConfigurableApplicationContext jedis = started("jedis", server, database)) {
            StringRedisTemplate byLettuce = lettuce.getBean(StringRedisTemplate.class), byJedis = jedis.getBean(StringRedisTemplate.class);
            check(boot + ": execute by Lettuce fails after the place was granted", () -> executeFails(byLettuce));
            check(boot + ": a connection of its own waits while others go on", () -> waitsAside(byLettuce));
            check(boot + ": Jedis gives up on a reply after 2 s", () -> expect(
                    "ms", ((JedisConnectionFactory) byJedis.getConnectionFactory()).getTimeout(), 2_000));
            for (Pages.Page page : Pages.ALL) {
                // The page says which driver a snippet is for.
                boolean isForJedis = page.text().contains("connection.execute(");
                check("pages: " + page.name(), () -> shows(page, isForJedis ? byJedis : byLettuce));
            }
        }
    }

    private static void followsLeader(String boot) throws Exception {
        Map<String, Group.Increment> clients = new LinkedHashMap<>();
        if (Group.MODE.equals("sentinel")) {
            String master = "spring.data.redis.sentinel.master=mymaster";
            String nodes = "spring.data.redis.sentinel.nodes=" + String.join(",", Group.addresses("SENTINELS"));
            for (String driver : List.of("lettuce", "jedis")) {
                clients.put(boot + " " + driver, increment(driver, master, nodes));
            }
        } else {
            String nodes = "spring.data.redis.cluster.nodes=" + String.join(",", Group.addresses("NODES"));
            clients.put(boot + " lettuce", increment("lettuce", nodes,
                    // Both are off by default.
                    "spring.data.redis.lettuce.cluster.refresh.adaptive=true", "spring.data.redis.lettuce.cluster.refresh.period=1s",
                    // A call that waits for a dead leader goes nowhere else, and by default waits for 60 s.
                    "spring.data.redis.timeout=2s"));
            clients.put(boot + " jedis", increment("jedis", nodes));
        }
        Group.follow(clients);
    }

    private static Group.Increment increment(String driver, String... properties) {
        StringRedisTemplate template = started(driver, properties).getBean(StringRedisTemplate.class);
        return key -> template.opsForValue().increment(key);
    }

    private static ConfigurableApplicationContext started(String driver, String... properties) {
        return new SpringApplicationBuilder(Main.class).web(WebApplicationType.NONE).logStartupInfo(false)
                .properties("spring.main.banner-mode=off", "logging.level.root=error", "spring.data.redis.client-type=" + driver,
                        "spring.data.redis.host=127.0.0.1")
                .properties(properties).run();
    }

    private static void executeFails(StringRedisTemplate template) {
        flush(template);
        byte[][] arguments = bytes("gate:devices", "job-4711", "LIMIT", "60", "PX", "30000");
        try {
            template.execute((RedisCallback<Object>) connection -> connection.execute("GATE.ACQUIRE", arguments));
            throw new AssertionError("Lettuce reads it now: spring.md should say so");
        } catch (RedisSystemException error) {
            expect("its cause", error.getCause().getMessage(), "io.lettuce.core.output.ByteArrayOutput does not support set(long)");
        }
        expect("in use", call(template, "GATE.INFO", "gate:devices").get(2), 1L);
    }

    private static void waitsAside(StringRedisTemplate template) throws Exception {
        flush(template);
        call(template, "LOCK.ACQUIRE", "lock:report", "somebody else", "PX", "60000");
        Pages.Page waiting = Pages.ALL.stream().filter(page -> WAITS.matcher(page.text()).find()).findFirst().orElseThrow();
        List<Boolean> granted = new ArrayList<>();
        Thread thread = new Thread(() -> granted.add(waiting.run().of(template, "job-4711", "worker-7:3f2a")));
        thread.start();
        // This thread frees the lock once the snippet waits for it.
        while (waiters(template) == 0) {
            expect("it is still waiting", thread.isAlive(), true);
            Thread.onSpinWait();
        }
        call(template, "LOCK.RELEASE", "lock:report", "somebody else");
        thread.join(30_000);
        expect("granted", granted, List.of(true));
    }

    private static long waiters(StringRedisTemplate template) {
        List<?> info = call(template, "LOCK.INFO", "lock:report");
        return (Long) info.get(info.indexOf("waiting") + 1);
    }

    /** Runs a snippet in the state that the page describes before it. A snippet that waits is first run in vain. */
    private static void shows(Pages.Page page, StringRedisTemplate template) {
        flush(template);
        if (page.text().contains("GATE.RELEASE")) {
            call(template, "GATE.ACQUIRE", "gate:devices", "job-4711", "LIMIT", "60", "PX", "60000");
        }
        Matcher waits = WAITS.matcher(page.text());
        if (waits.find()) {
            call(template, "LOCK.ACQUIRE", waits.group(2), "somebody else", "PX", "60000");
            expect("granted", page.run().of(template, "job-4711", "worker-7:3f2a"), false);
            call(template, "LOCK.BREAK", waits.group(2));
        }
        expect("granted", page.run().of(template, "job-4711", "worker-7:3f2a"), true);
    }

    private static void flush(StringRedisTemplate template) {
        template.execute((RedisCallback<Void>) connection -> {
            connection.serverCommands().flushDb();
            return null;
        });
    }

    @SuppressWarnings("rawtypes")
    private static List<?> call(StringRedisTemplate template, String command, String key, Object... arguments) {
        RedisScript<List> script = RedisScript.of("return redis.call('" + command + "', KEYS[1], unpack(ARGV))", List.class);
        return template.execute(script, List.of(key), arguments);
    }

    private static byte[][] bytes(String... texts) {
        return List.of(texts).stream().map(String::getBytes).toArray(byte[][]::new);
    }

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
}
