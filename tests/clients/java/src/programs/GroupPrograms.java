package programs;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.masterreplica.MasterReplica;
import java.time.Duration;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisSentinelPool;
import redis.clients.jedis.RedisSentinelClient;

/** Jedis, Lettuce and Redisson follow the leader of a group, all at once. */
final class GroupPrograms {
    static void run() throws Exception {
        Map<String, Group.Increment> clients = new LinkedHashMap<>();
        if (Group.MODE.equals("sentinel")) {
            bySentinel(clients, Group.addresses("SENTINELS"));
        } else {
            inClusterMode(clients, Group.addresses("NODES"));
        }
        Group.follow(clients);
    }

    private static void bySentinel(Map<String, Group.Increment> clients, List<String> addresses) {
        RedisSentinelClient jedis = RedisSentinelClient.builder().masterName("mymaster").sentinels(hosts(addresses)).build();
        clients.put("jedis", jedis::incr);

        // The older pool, which Spring uses, takes no notice of READONLY.
        JedisSentinelPool pool = new JedisSentinelPool("mymaster", new HashSet<>(addresses));
        clients.put("jedis pool", key -> {
            try (Jedis connection = pool.getResource()) {
                return connection.incr(key);
            }
        });

        RedisURI uri = RedisURI.create("redis-sentinel://" + String.join(",", addresses) + "#mymaster");
        RedisClient lettuce = RedisClient.create();
        clients.put("lettuce", lettuce.connect(uri).sync()::incr);
        clients.put("lettuce master/replica", MasterReplica.connect(lettuce, StringCodec.UTF8, uri).sync()::incr);

        Config config = new Config();
        config.useSentinelServers().setMasterName("mymaster").addSentinelAddress(urls(addresses));
        RedissonClient redisson = Redisson.create(config);
        clients.put("redisson", key -> redisson.getAtomicLong(key).incrementAndGet());
    }

    private static void inClusterMode(Map<String, Group.Increment> clients, List<String> addresses) {
        redis.clients.jedis.RedisClusterClient jedis = redis.clients.jedis.RedisClusterClient.create(hosts(addresses));
        clients.put("jedis", jedis::incr);

        // A call that waits for a dead leader goes nowhere else, and by default waits for 60 s.
        RedisClusterClient lettuce = RedisClusterClient.create(Stream.of(urls(addresses)).map(url -> RedisURI.create(url + "?timeout=2s")).toList());
        // Both are off by default.
        lettuce.setOptions(ClusterClientOptions.builder().topologyRefreshOptions(ClusterTopologyRefreshOptions.builder()
                .enableAllAdaptiveRefreshTriggers().enablePeriodicRefresh(Duration.ofSeconds(1)).build()).build());
        clients.put("lettuce", lettuce.connect().sync()::incr);

        Config config = new Config();
        // By default it looks for another leader every 5 s.
        config.useClusterServers().setScanInterval(1_000).addNodeAddress(urls(addresses));
        RedissonClient redisson = Redisson.create(config);
        clients.put("redisson", key -> redisson.getAtomicLong(key).incrementAndGet());
    }

    private static Set<HostAndPort> hosts(List<String> addresses) {
        return addresses.stream().map(HostAndPort::from).collect(Collectors.toSet());
    }

    private static String[] urls(List<String> addresses) {
        return addresses.stream().map(address -> "redis://" + address).toArray(String[]::new);
    }

    private GroupPrograms() {}
}
