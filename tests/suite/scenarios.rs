//! Flows of today's users, under a crowd: gates, stock, limits, IDs, locks, flash sales, order workers, likes, feeds,
//! nearby shops, sign-in calendars. Each `row` is one kind of use.
//!
//! The scripts in `tests/suite/scenarios` are written as such users write them: on one line with semicolons, with
//! comments in Chinese, without a newline at the end, with keys that are built from arguments. They must run byte for
//! byte, because clients send their SHA1. The project's own scripts do these jobs better and are tested in
//! [`crate::bundled`]; here the users' flows count, with their known defects.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use redis::streams::{StreamAutoClaimReply, StreamPendingReply, StreamReadReply};
use redis::{Connection, Value};

use crate::crowd::{CROWD, Lua, at_once, on_both, run, try_run};
use crate::harness::{Program, Server};

on_both!(
    spring_sends_the_text_only_after_noscript,
    row_01_gate,
    row_02_inventory,
    row_03_funnel,
    row_04_daily_limit,
    row_05_global_ids,
    row_06_lock,
    row_07_flash_sale,
    row_08_order_worker,
    row_09_likes,
    row_10_feed,
    row_11_nearby_shops,
    row_12_sign_in,
);

/// A script of `tests/suite/scenarios`.
macro_rules! script {
    ($name:literal) => {
        Lua::new(include_str!(concat!("scenarios/", $name, ".lua")))
    };
}

/// Both versions of the flash sale; the second queues the order too.
fn seckill(version: u8) -> Lua {
    if version == 1 { script!("seckill_v1") } else { script!("seckill_v2") }
}

fn start(program: Program) -> (Server, Connection) {
    let server = Server::start(program, &[]);
    let connection = server.client();
    (server, connection)
}

fn spring_sends_the_text_only_after_noscript(program: Program) {
    let (server, mut c) = start(program);
    let script = script!("gate_acquire");
    let by_sha = format!("EVALSHA {} 1 gate 60", script.sha1());
    let error = try_run::<i64>(&mut c, &by_sha).expect_err("nobody has sent the text yet");
    assert_eq!(error.code(), Some("NOSCRIPT"));
    assert_eq!(error.detail(), Some("No matching script. Please use EVAL."));
    let place: i64 =
        redis::cmd("EVAL").arg(script.text()).arg(1).arg("gate").arg(60).query(&mut c).expect("EVAL runs the text");
    assert_eq!(place, 1);
    assert_eq!(run::<i64>(&mut c, &by_sha), 2, "EVAL has cached it");
    assert_eq!(run::<i64>(&mut c, &by_sha.replace(script.sha1(), &script.sha1().to_uppercase())), 3);

    let _: () = run(&mut c, "SCRIPT FLUSH");
    assert!(try_run::<i64>(&mut c, &by_sha).is_err());
    let places = at_once(&server, |_, c| script.call::<i64>(c, &["gate"], &["60"]));
    assert_eq!(places.iter().collect::<HashSet<_>>().len(), CROWD, "each got a place of its own");
}

fn row_01_gate(program: Program) {
    let (server, mut c) = start(program);
    let (acquire, release) = (script!("gate_acquire"), script!("gate_release"));
    assert_eq!(release.call::<Option<i64>>(&mut c, &["gate"], &[]), None, "nil when the key is gone");

    let counts = at_once(&server, |_, c| (0..5).map(|_| acquire.call(c, &["gate"], &["60"])).collect::<Vec<i64>>());
    let mut counts = counts.concat();
    counts.sort_unstable();
    assert_eq!(counts[..60], (1..=60).collect::<Vec<i64>>()[..], "60 grants, each with its own count");
    assert!(counts[60..].iter().all(|count| *count == 60), "a refusal answers 60, like the last grant");
    assert_eq!(run::<i64>(&mut c, "GET gate"), 60);
    assert!((1..=300).contains(&run::<i64>(&mut c, "TTL gate")));

    let left = at_once(&server, |_, c| (0..3).map(|_| release.call(c, &["gate"], &[])).collect::<Vec<i64>>());
    assert!(left.concat().iter().all(|count| (0..60).contains(count)), "never below 0");
    assert_eq!(run::<i64>(&mut c, "GET gate"), 0);

    // Half of the crowd competes for 10 places. A caller that reads a 10 can't know whether it has a place, and gives
    // none back; so a gate of 100 for 32 holders follows, where no count is in doubt.
    at_once(&server, |_, c| {
        for _ in 0..20 {
            let count: i64 = acquire.call(c, &["gate"], &["10"]);
            assert!((1..=10).contains(&count), "over the limit: {count}");
            assert!((0..=10).contains(&run::<i64>(c, "GET gate")));
            if count < 10 {
                let _: i64 = release.call(c, &["gate"], &[]);
            }
        }
    });
    let _: () = run(&mut c, "DEL gate");
    let inside = AtomicI64::new(0);
    at_once(&server, |_, c| {
        for _ in 0..50 {
            let count: i64 = acquire.call(c, &["gate"], &["100"]);
            let holders = inside.fetch_add(1, Ordering::SeqCst) + 1;
            assert!((1..=CROWD as i64).contains(&count) && holders <= CROWD as i64);
            inside.fetch_sub(1, Ordering::SeqCst);
            assert!(release.call::<i64>(c, &["gate"], &[]) < CROWD as i64);
        }
    });
    assert_eq!(run::<i64>(&mut c, "GET gate"), 0, "all places came back");
}

fn row_02_inventory(program: Program) {
    const UNITS: i64 = 3_000;
    const SEGMENT: i64 = 200;
    let (server, mut c) = start(program);
    let database = Mutex::new(UNITS);
    let sold = at_once(&server, |client, c| {
        let me = format!("client-{client}");
        let mut sold = 0;
        loop {
            let exists: bool = run(c, "EXISTS stock");
            if exists && run::<i64>(c, "INCRBY stock -1") >= 0 {
                sold += 1;
                continue;
            }
            if exists {
                let _: i64 = run(c, "INCRBY stock 1");
            }
            // Refill under the lock; a caller that doesn't get it polls.
            if run::<Option<String>>(c, &format!("SET stock:lock {me} NX EX 120")).is_none() {
                std::thread::yield_now();
                continue;
            }
            let segment = {
                let mut row = database.lock().expect("no client panicked inside");
                let segment = SEGMENT.min(*row);
                *row -= segment;
                segment
            };
            // Another caller may have refilled between our check and our lock; one more segment does no harm.
            let left: i64 = run(c, &format!("INCRBY stock {segment}"));
            assert_eq!(run::<i64>(c, "DEL stock:lock"), 1);
            if segment == 0 && left <= 0 {
                return sold;
            }
        }
    });
    let left: i64 = run(&mut c, "GET stock");
    assert_eq!(sold.iter().sum::<i64>() + left, UNITS, "nothing sold twice, nothing lost");
    assert!(left >= 0, "settled, the stock is not negative");
    assert_eq!(database.into_inner().expect("no client panicked inside"), 0);
}

fn row_03_funnel(program: Program) {
    const CAPACITY: f64 = 40.0;
    let (server, mut c) = start(program);
    let passed = at_once(&server, |_, c| (0..3).filter(|_| funnel_by_client(c, CAPACITY, 1.0 / 1800.0)).count());
    assert_eq!(passed.iter().sum::<usize>(), CAPACITY as usize, "no more than the capacity, none lost");
    let fields: HashMap<String, f64> = run(&mut c, "HGETALL funnel:phone");
    assert_eq!((fields["capacity"], fields["leftQuota"]), (CAPACITY, 0.0));
    assert!((1..=1810).contains(&run::<i64>(&mut c, "TTL funnel:phone")));
}

/// A message through the users' funnel: poll a lock, read the hash, change it by the client's clock, write it in a
/// pipeline.
fn funnel_by_client(c: &mut Connection, capacity: f64, rate: f64) -> bool {
    while run::<Option<String>>(c, "SET funnel:lock 1 NX EX 5").is_none() {
        std::thread::yield_now();
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_millis() as f64;
    let fields: HashMap<String, f64> = run(c, "HGETALL funnel:phone");
    let since = fields.get("leakingTs").copied().unwrap_or(now);
    let leaked = ((now - since) / 1000.0 * rate).floor();
    let left = (fields.get("leftQuota").copied().unwrap_or(capacity) + leaked).min(capacity);
    let passes = left >= 1.0;
    let left = if passes { left - 1.0 } else { left };
    let since = if leaked > 0.0 || fields.is_empty() { now } else { since };
    let (set, expired): (String, i64) = redis::pipe()
        .cmd("HMSET")
        .arg("funnel:phone")
        .arg(&[("capacity", capacity), ("leftQuota", left), ("leakingTs", since), ("leakingRate", rate)])
        .cmd("EXPIRE")
        .arg("funnel:phone")
        .arg(1810)
        .query(c)
        .expect("the pipeline runs");
    assert_eq!((set.as_str(), expired), ("OK", 1));
    assert_eq!(run::<i64>(c, "DEL funnel:lock"), 1);
    passes
}

fn row_04_daily_limit(program: Program) {
    let (server, mut c) = start(program);
    let key = "DAY_SEND_COUNT20261120:account";
    let script = script!("daily_limit");
    let allowed = at_once(&server, |_, c| {
        (0..40).filter(|_| script.call::<String>(c, &[key], &["86400", "1000"]) == "0").count()
    });
    assert_eq!(allowed.iter().sum::<usize>(), 1000);
    assert_eq!(run::<usize>(&mut c, &format!("GET {key}")), CROWD * 40, "the users' script counts refusals too");
    assert!((1..=86_400).contains(&run::<i64>(&mut c, &format!("TTL {key}"))));
}

fn row_05_global_ids(program: Program) {
    const EPOCH: u64 = 1_672_531_200;
    let (server, mut c) = start(program);
    let ids = at_once(&server, |_, c| {
        (0..200)
            .map(|_| {
                let seconds =
                    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_secs() - EPOCH;
                seconds << 32 | run::<u64>(c, "INCR icr:order:2026:11:20")
            })
            .collect::<Vec<u64>>()
    });
    let mut ids = ids.concat();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), CROWD * 200, "every ID is unique");
    assert_eq!(run::<usize>(&mut c, "GET icr:order:2026:11:20"), CROWD * 200, "and no number is left out");
}

fn row_06_lock(program: Program) {
    let (server, mut c) = start(program);
    let unlock = script!("unlock");
    let inside = AtomicI64::new(0);
    at_once(&server, |client, c| {
        for job in 0..10 {
            let owner = format!("{client}-{job}");
            while run::<Option<String>>(c, &format!("SET lock {owner} NX EX 600")).is_none() {
                assert_eq!(unlock.call::<i64>(c, &["lock"], &[&owner]), 0, "only the owner can release");
            }
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two owners at once");
            assert_eq!(run::<String>(c, "GET lock"), owner);
            inside.fetch_sub(1, Ordering::SeqCst);
            assert_eq!(unlock.call::<i64>(c, &["lock"], &[&owner]), 1);
        }
    });
    assert_eq!(run::<i64>(&mut c, "EXISTS lock"), 0);
    let _: () = run(&mut c, "SET lock me NX PX 600000");
    assert!((1..=600_000).contains(&run::<i64>(&mut c, "PTTL lock")));
    assert_eq!(unlock.call::<i64>(&mut c, &["lock"], &["me"]), 1);
}

fn row_07_flash_sale(program: Program) {
    let (server, mut c) = start(program);
    for version in [1, 2] {
        let script = seckill(version);
        let _: () = run(&mut c, "FLUSHDB");
        assert_eq!(script.call::<i64>(&mut c, &[], &["9", "user", "order"]), 1, "no such voucher");
        let _: () = run(&mut c, "SET seckill:stock:9 100");
        let bought = at_once(&server, |client, c| {
            let users = (0..150).map(|step| ((client * 11 + step) % 150).to_string());
            users
                .filter(|user| script.call::<i64>(c, &[], &["9", user, &format!("order-{user}")]) == 0)
                .collect::<Vec<_>>()
        });
        let bought = bought.concat();
        assert_eq!(bought.len(), 100, "as many as were there");
        assert_eq!(bought.iter().collect::<HashSet<_>>().len(), 100, "no buyer twice");
        assert_eq!(run::<i64>(&mut c, "GET seckill:stock:9"), 0, "never negative");
        let buyers: HashSet<String> = run(&mut c, "SMEMBERS seckill:order:9");
        assert_eq!(buyers, bought.iter().cloned().collect());
        assert_eq!(script.call::<i64>(&mut c, &[], &["9", &bought[0], "again"]), 1, "sold out is said first");
        let _: () = run(&mut c, "INCRBY seckill:stock:9 1");
        assert_eq!(script.call::<i64>(&mut c, &[], &["9", &bought[0], "again"]), 2, "already bought");

        let queued: Vec<(String, Vec<String>)> = run(&mut c, "XRANGE stream.orders - +");
        assert_eq!(queued.len(), if version == 2 { 100 } else { 0 });
        for (_, fields) in queued {
            let user = &fields[1];
            assert_eq!(fields, ["userId", user, "voucherId", "9", "id", &format!("order-{user}")]);
        }
    }
}

/// Half of the crowd sells, half processes the orders. Every fifth order fails at its first attempt, and one consumer
/// died with three orders in hand.
fn row_08_order_worker(program: Program) {
    const ORDERS: usize = 200;
    let (server, mut c) = start(program);
    let script = seckill(2);
    let _: () = run(&mut c, &format!("SET seckill:stock:9 {ORDERS}"));
    let _: () = run(&mut c, "XGROUP CREATE stream.orders g1 0 MKSTREAM");
    let again = try_run::<Value>(&mut c, "XGROUP CREATE stream.orders g1 0 MKSTREAM").expect_err("it exists");
    assert_eq!(again.code(), Some("BUSYGROUP"));

    let desk = Desk { worked: Mutex::new(HashMap::new()), failed: Mutex::new(HashSet::new()) };
    for user in 0..3 {
        assert_eq!(script.call::<i64>(&mut c, &[], &["9", &format!("early-{user}"), &user.to_string()]), 0);
    }
    let taken: StreamReadReply = run(&mut c, "XREADGROUP GROUP g1 dead COUNT 3 BLOCK 2000 STREAMS stream.orders >");
    assert_eq!(taken.keys[0].ids.len(), 3);

    let acknowledged = AtomicUsize::new(0);
    at_once(&server, |client, c| {
        if client % 2 == 0 {
            for user in 0..20 {
                let _: i64 = script.call(c, &[], &["9", &format!("{client}-{user}"), &format!("{client}-{user}")]);
            }
            return;
        }
        let consumer = format!("c{client}");
        while acknowledged.load(Ordering::SeqCst) < ORDERS - 3 {
            desk.work_one(c, &consumer, &acknowledged);
        }
    });
    assert_eq!(run::<usize>(&mut c, "XLEN stream.orders"), ORDERS);

    let pending: StreamPendingReply = run(&mut c, "XPENDING stream.orders g1");
    let StreamPendingReply::Data(pending) = pending else { panic!("the dead consumer's orders are pending") };
    assert_eq!((pending.count, pending.consumers.len(), pending.consumers[0].name.as_str()), (3, 1, "dead"));
    let mut cursor = "0-0".to_owned();
    loop {
        let claimed: StreamAutoClaimReply =
            run(&mut c, &format!("XAUTOCLAIM stream.orders g1 heir 0 {cursor} COUNT 2"));
        for entry in &claimed.claimed {
            desk.work(&entry.get::<String>("id").expect("an order has an ID"));
            assert_eq!(run::<i64>(&mut c, &format!("XACK stream.orders g1 {}", entry.id)), 1);
        }
        cursor = claimed.next_stream_id;
        if cursor == "0-0" {
            break;
        }
    }
    let worked = desk.worked.into_inner().expect("no worker panicked inside");
    assert_eq!(worked.len(), ORDERS, "every order");
    assert!(worked.values().all(|times| *times == 1), "exactly once");
    assert!(matches!(run(&mut c, "XPENDING stream.orders g1"), StreamPendingReply::Empty), "and acknowledged");
}

/// Processes orders.
struct Desk {
    worked: Mutex<HashMap<String, usize>>,
    failed: Mutex<HashSet<String>>,
}

impl Desk {
    /// One turn of the users' worker: wait for a new order, process and acknowledge it; after an error, its own pending
    /// list.
    fn work_one(&self, c: &mut Connection, consumer: &str, acknowledged: &AtomicUsize) {
        let new = format!("XREADGROUP GROUP g1 {consumer} COUNT 1 BLOCK 2000 STREAMS stream.orders >");
        let Some(order) = Desk::read(c, &new) else { return };
        let id = order.get::<String>("id").expect("an order has an ID");
        let fails =
            id.ends_with(['0', '5']) && self.failed.lock().expect("no worker panicked inside").insert(id.clone());
        if !fails {
            self.work(&id);
            acknowledged.fetch_add(run::<usize>(c, &format!("XACK stream.orders g1 {}", order.id)), Ordering::SeqCst);
            return;
        }
        let own = format!("XREADGROUP GROUP g1 {consumer} COUNT 1 STREAMS stream.orders 0");
        while let Some(order) = Desk::read(c, &own) {
            self.work(&order.get::<String>("id").expect("an order has an ID"));
            acknowledged.fetch_add(run::<usize>(c, &format!("XACK stream.orders g1 {}", order.id)), Ordering::SeqCst);
        }
    }

    fn read(c: &mut Connection, line: &str) -> Option<redis::streams::StreamId> {
        let reply: Option<StreamReadReply> = run(c, line);
        reply?.keys.into_iter().flat_map(|stream| stream.ids).next()
    }

    fn work(&self, order: &str) {
        *self.worked.lock().expect("no worker panicked inside").entry(order.to_owned()).or_default() += 1;
    }
}

fn row_09_likes(program: Program) {
    let (server, mut c) = start(program);
    at_once(&server, |user, c| {
        for _ in 0..=user {
            if run::<bool>(c, &format!("SISMEMBER liked {user}")) {
                assert_eq!(run::<i64>(c, &format!("SREM liked {user}")), 1);
            } else {
                assert_eq!(run::<i64>(c, &format!("SADD liked {user}")), 1);
            }
            // Likes ordered by time, so that the first users can be shown. Some scores are equal on purpose.
            let time = 100 - user / 2;
            match run::<Option<f64>>(c, &format!("ZSCORE likers {user:02}")) {
                Some(score) => {
                    assert_eq!(score, time as f64);
                    assert_eq!(run::<i64>(c, &format!("ZREM likers {user:02}")), 1);
                }
                None => assert_eq!(run::<i64>(c, &format!("ZADD likers {time} {user:02}")), 1),
            }
        }
    });
    // Users 0, 2, 4, ... pressed an odd number of times; the later users have the earlier times.
    let liked: HashSet<usize> = run(&mut c, "SMEMBERS liked");
    assert_eq!(liked, (0..CROWD).step_by(2).collect());
    assert_eq!(run::<Vec<String>>(&mut c, "ZRANGE likers 0 4"), ["30", "28", "26", "24", "22"]);

    let _: () = run(&mut c, "ZADD likers 85 31 85 29 85 27");
    assert_eq!(run::<Vec<String>>(&mut c, "ZRANGE likers 0 4"), ["27", "29", "30", "31", "28"], "ties by name");

    at_once(&server, |_, c| {
        for player in 0..20 {
            let _: f64 = run(c, &format!("ZINCRBY board {player} player-{player:02}"));
        }
    });
    let top: Vec<(String, f64)> = run(&mut c, "ZREVRANGE board 0 1 WITHSCORES");
    assert_eq!(top, [("player-19".to_owned(), 19.0 * CROWD as f64), ("player-18".to_owned(), 18.0 * CROWD as f64)]);
    assert_eq!(run::<i64>(&mut c, "ZREVRANK board player-00"), 19);
}

/// A page of a feed continues where the last one ended: at its lowest time, past the posts of that time already seen.
fn scroll(c: &mut Connection, inbox: &str, from: u64) -> Vec<String> {
    let (mut max, mut offset, mut seen) = (from, 0, Vec::new());
    loop {
        let page: Vec<(String, u64)> = run(c, &format!("ZREVRANGEBYSCORE {inbox} {max} 0 WITHSCORES LIMIT {offset} 7"));
        let Some(&(_, lowest)) = page.last() else { return seen };
        let same = page.iter().filter(|(_, time)| *time == lowest).count();
        offset = if lowest == max { offset + same } else { same };
        max = lowest;
        seen.extend(page.into_iter().map(|(post, _)| post));
    }
}

fn row_10_feed(program: Program) {
    const POSTS: usize = 10;
    const FOLLOWERS: usize = 4;
    let (server, mut c) = start(program);
    let push = |c: &mut Connection, author: usize, post: usize, time: usize| {
        for follower in 0..FOLLOWERS {
            assert_eq!(run::<i64>(c, &format!("ZADD feed:{follower} {time} {author}-{post}")), 1);
        }
    };
    // Three authors in a row share each time, so that pages end inside a tie.
    at_once(&server, |author, c| (0..POSTS).for_each(|post| push(c, author, post, 1_000 + post * 20 + author / 3)));
    assert_eq!(run::<usize>(&mut c, "ZCARD feed:0"), CROWD * POSTS);

    let pages = at_once(&server, |client, c| {
        if client % 2 == 0 {
            (0..POSTS).for_each(|post| push(c, client, POSTS + post, 5_000 + post));
            return None;
        }
        Some(scroll(c, &format!("feed:{}", client % FOLLOWERS), 4_999))
    });
    for seen in pages.into_iter().flatten() {
        assert_eq!(seen.len(), CROWD * POSTS, "all earlier posts, though new ones came in");
        assert_eq!(seen.iter().collect::<HashSet<_>>().len(), seen.len(), "no post twice");
        let time = |post: &String| {
            let (author, number) = post.split_once('-').expect("author-number");
            number.parse::<usize>().expect("a number") * 20 + author.parse::<usize>().expect("a number") / 3
        };
        assert!(seen.is_sorted_by(|newer, older| time(newer) >= time(older)), "newest first");
    }
    assert_eq!(scroll(&mut c, "feed:0", 9_999).len(), CROWD / 2 * POSTS + CROWD * POSTS);
}

fn row_11_nearby_shops(program: Program) {
    const SHOPS: usize = 10;
    let (server, mut c) = start(program);
    let place =
        |client: usize, shop: usize| (120.0 + client as f64 * 0.01, 30.0 + shop as f64 * 0.01 + client as f64 * 0.001);
    at_once(&server, |client, c| {
        for shop in 0..SHOPS {
            let (longitude, latitude) = place(client, shop);
            assert_eq!(run::<i64>(c, &format!("GEOADD shops {longitude} {latitude} {client}-{shop}")), 1);
        }
    });

    let (here_longitude, here_latitude) = (120.15, 30.05);
    let mut expected: Vec<(String, f64)> = (0..CROWD * SHOPS)
        .map(|n| (n / SHOPS, n % SHOPS))
        .map(|(client, shop)| {
            let (longitude, latitude) = place(client, shop);
            (format!("{client}-{shop}"), distance(longitude, latitude, here_longitude, here_latitude))
        })
        .filter(|(_, metres)| *metres <= 5_000.0)
        .collect();
    expected.sort_by(|a, b| a.1.total_cmp(&b.1));
    assert!(expected.len() > 30, "a few pages");

    let found = at_once(&server, |_, c| {
        let (mut shops, mut from) = (Vec::<(String, f64)>::new(), 0);
        loop {
            // A page: as many as all pages so far, minus those seen.
            let to = from + 8;
            let near: Vec<(String, f64)> = run(
                c,
                &format!(
                    "GEOSEARCH shops FROMLONLAT {here_longitude} {here_latitude} \
                     BYRADIUS 5000 m ASC COUNT {to} WITHDIST"
                ),
            );
            if near.len() <= from {
                return shops;
            }
            shops.extend_from_slice(&near[from..]);
            from = to;
        }
    });
    for shops in &found {
        assert_eq!(shops.len(), expected.len(), "each shop on one page");
        for ((name, metres), (expected_name, expected_metres)) in shops.iter().zip(&expected) {
            // Positions are stored to within about half a metre.
            assert!((metres - expected_metres).abs() < 2.0, "{name}: {metres}, {expected_name}: {expected_metres}");
        }
    }
    let names: HashSet<&String> = found[0].iter().map(|(name, _)| name).collect();
    assert_eq!(names, expected.iter().map(|(name, _)| name).collect());

    let old: Vec<(String, f64)> =
        run(&mut c, &format!("GEORADIUS shops {here_longitude} {here_latitude} 5 km WITHDIST COUNT 8 ASC"));
    for ((name, km), (new_name, metres)) in old.iter().zip(&found[0]) {
        assert!(name == new_name && (km * 1000.0 - metres).abs() < 1.0, "{name}: {km} km, {new_name}: {metres} m");
    }
    let between: f64 = run(&mut c, "GEODIST shops 0-0 31-9 m");
    let ((x1, y1), (x2, y2)) = (place(0, 0), place(31, 9));
    assert!((between - distance(x1, y1, x2, y2)).abs() < 2.0, "{between}");
}

/// Metres between two positions in degrees, by the haversine formula on the sphere that GEODIST uses.
fn distance(longitude1: f64, latitude1: f64, longitude2: f64, latitude2: f64) -> f64 {
    const EARTH_RADIUS_M: f64 = 6_372_797.560_856;
    let half = |a: f64, b: f64| ((b - a).to_radians() / 2.0).sin().powi(2);
    let a = half(latitude1, latitude2)
        + latitude1.to_radians().cos() * latitude2.to_radians().cos() * half(longitude1, longitude2);
    2.0 * EARTH_RADIUS_M * a.sqrt().asin()
}

fn row_12_sign_in(program: Program) {
    const TODAY: usize = 20;
    let (server, mut c) = start(program);
    at_once(&server, |user, c| {
        // User n missed one day, the nth; later users were there every day.
        let present = |day: usize| day != user;
        for day in (0..TODAY).filter(|day| present(*day)) {
            assert_eq!(run::<i64>(c, &format!("SETBIT sign:{user}:202611 {day} 1")), 0);
            assert_eq!(run::<i64>(c, &format!("SETBIT sign:{user}:202611 {day} 1")), 1, "signed in already");
            assert_eq!(run::<i64>(c, &format!("SETBIT sign:all:{day} {user} 1")), 0);
        }
        for day in 0..31 {
            assert_eq!(run::<bool>(c, &format!("GETBIT sign:{user}:202611 {day}")), day < TODAY && present(day));
        }
        let [days]: [u64; 1] = run(c, &format!("BITFIELD sign:{user}:202611 GET u{TODAY} 0"));
        let streak = days.trailing_ones() as usize;
        assert_eq!(streak, if user < TODAY { TODAY - 1 - user } else { TODAY });
        let signed: usize = run(c, &format!("BITCOUNT sign:{user}:202611"));
        assert_eq!(signed, TODAY - usize::from(user < TODAY));
    });
    for day in 0..TODAY {
        assert_eq!(
            run::<usize>(&mut c, &format!("BITCOUNT sign:all:{day}")),
            CROWD - 1,
            "all but one came on day {day}"
        );
        assert_eq!(run::<i64>(&mut c, &format!("BITPOS sign:all:{day} 0")), day as i64);
    }
}
