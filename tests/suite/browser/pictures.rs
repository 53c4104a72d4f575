//! Pictures of the console for the documentation, of a server that looks like one of a shop with couriers.
//!
//! `SUITE_SCREENSHOTS=docs/images cargo test --test suite browser::pictures` writes them. Otherwise the test only
//! checks that they can be taken.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::console;
use crate::harness::{Raw, Server, Value, until};
use crate::oracle::CHROMEDRIVER;

use super::{base64, signed_in};

/// Pixels of a picture.
const WIDE: u32 = 1280;
const HIGH: u32 = 800;

/// Readers load each picture with the page that shows it.
const PICTURE_MAX_BYTES: usize = 120 * 1024;

/// How long the server works before its pictures are kept: leases become shorter, and charts longer.
const WORKS: Duration = Duration::from_secs(20);

/// Tables of which a part can be seen only by scrolling sideways.
const CUT: &str = "return [...document.querySelectorAll('.scroll')].filter((part) => part.scrollWidth > \
     part.clientWidth).map((part) => part.getAttribute('aria-label'))";

#[test]
fn pictures_for_the_docs() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let folder = std::env::var("SUITE_SCREENSHOTS").ok().map(PathBuf::from);
    let (server, address) = console::start(&["--appendonly", "yes"]);
    let _clients = furnish(&server);
    let browser = signed_in(address, WIDE, HIGH);
    browser.sees("Nothing is wrong");
    let _sender = messages(&server);
    if folder.is_some() {
        work(&server);
    }
    let keep = |name: &str, picture: &str| {
        let picture = base64(picture);
        assert_eq!(browser.run(CUT), json!([]), "{name}: tables that do not fit");
        assert!(picture.starts_with(b"\x89PNG"), "{name} is a picture");
        let Some(folder) = &folder else { return };
        assert!(picture.len() <= PICTURE_MAX_BYTES, "{name} has {} bytes", picture.len());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(format!("{name}.png"));
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a writable folder");
        std::fs::write(path, picture).expect("a writable folder");
    };
    let theme = |name: &str| browser.run(&format!("document.documentElement.dataset.theme = '{name}'"));
    theme("dark");
    browser.sees("2 messages became dead letters");
    keep("console-overview", &browser.picture());
    theme("light");
    browser.go(&format!("http://{address}/#/locks?key=t%3Alock%3Asettlement%3A2026-11"));
    browser.sees("refunds:17");
    keep("console-locks", &browser.picture());
    browser.click("//tr[contains(.,'settler-2')]//button[.='Break']");
    browser.write("//dialog//input[@name='note']", "settler-2 has not answered since 14:05");
    keep("console-break", &browser.picture_of("//dialog"));
    browser.click("//dialog//button[.='Cancel']");
    browser.go(&format!("http://{address}/#/queues?key=t%3Asms%3Adead"));
    browser.sees("2 found among 2 entries.");
    keep("console-dead-letters", &browser.picture());
    browser.go(&format!("http://{address}/#/locks?key=t%3Alock%3Asettlement%3A2026-11"));
    browser.click("//button[.='中文']");
    browser.sees("锁与闸门");
    browser.sees("refunds:17");
    keep("zh/console-locks", &browser.picture());
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// The words of a command. A `~` is a space in one of them.
fn words(line: &str) -> Vec<String> {
    line.split(' ').map(|word| word.replace('~', " ")).collect()
}

/// A client of this name, after it has sent these commands.
fn client(server: &Server, name: &str, lines: &[&str]) -> Raw {
    let mut raw = server.raw();
    raw.command(&["CLIENT", "SETNAME", name]);
    for line in lines {
        let reply = raw.command(&words(line));
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
    }
    raw
}

/// Orders, couriers and short messages. Grants last as long as their clients are connected, at least.
fn furnish(server: &Server) -> Vec<Raw> {
    let settled = "lock:settlement:2026-11";
    let mut clients = vec![
        client(
            server,
            "settler-1",
            &[&format!("LOCK.ACQUIRE {settled} settler-1 PX 60000"), &format!("LOCK.RELEASE {settled} settler-1")],
        ),
        client(server, "settler-9", &[&format!("LOCK.ACQUIRE {settled} settler-9 PX 600000")]),
        client(server, "ops", &[&format!("LOCK.BREAK {settled} NOTE settler-9~lost~its~disk")]),
        client(server, "settler-2", &[&format!("LOCK.ACQUIRE {settled} settler-2 PX 60000 NOTE november~2026")]),
        client(server, "refunds", &[&format!("LOCK.ACQUIRE {settled} refunds:17 PX 30000")]),
        client(
            server,
            "payments",
            &[
                "LOCK.ACQUIRE lock:order:7319 pay:3b1c PX 45000",
                "LOCK.ACQUIRE lock:order:7342 pay:9f04 PX 90000",
                "LOCK.ACQUIRE lock:order:7350 pay:51aa PX 120000",
            ],
        ),
        client(
            server,
            "dispatch",
            &[
                "LOCK.ACQUIRE lock:courier:88 assign:7342 PX 40000",
                "LOCK.ACQUIRE lock:courier:112 assign:7350 PX 75000",
            ],
        ),
        client(server, "cron", &["LOCK.ACQUIRE lock:cron:invoices berlin-1 PX 300000"]),
        client(
            server,
            "sms",
            &[
                "GATE.ACQUIRE gate:sms-provider otp:4411 LIMIT 3 PX 60000",
                "GATE.ACQUIRE gate:sms-provider otp:4412 LIMIT 3 PX 60000",
                "GATE.ACQUIRE gate:sms-provider delivered:7319 LIMIT 3 PX 60000",
                "LIMIT.TAKE RULES 1 sms:+4917012 FIXED 1 600000",
                "LIMIT.TAKE RULES 1 sms:+4917012 FIXED 1 600000",
            ],
        ),
        client(
            server,
            "shop",
            &[
                "STOCK.SET stock:voucher:november 500 LOW 100 5000",
                "STOCK.RESERVE stock:voucher:november order:7350 UNITS 20 PX 600000 PER ann 40",
                "XADD reminders DELAY 3600000 * order 7350 text rate~your~courier",
            ],
        ),
    ];
    for (name, line) in [
        ("settler-3", format!("LOCK.ACQUIRE {settled} settler-3 PX 600000 BLOCK 600000")),
        ("reports", format!("LOCK.ACQUIRE {settled} report:daily PX 60000 BLOCK 120000")),
        ("audit", format!("LOCK.ACQUIRE {settled} audit-export PX 60000 BLOCK 0")),
        ("sms", "GATE.ACQUIRE gate:sms-provider otp:4413 LIMIT 3 PX 60000 BLOCK 0".to_owned()),
        ("dispatch", "LOCK.ACQUIRE lock:courier:88 assign:7361 PX 60000 BLOCK 0".to_owned()),
    ] {
        let mut waiter = client(server, name, &[]);
        waiter.send_command(&words(&line));
        clients.push(waiter);
    }
    clients
}

/// Short messages to send, two of which nobody could.
fn messages(server: &Server) -> Raw {
    let mut raw = client(
        server,
        "sms",
        &[
            "XGROUP CREATE sms senders 0 MKSTREAM",
            "XGROUP SETPOLICY sms senders IDLE 1 MAXDELIVERIES 1 DLQ sms:dead",
            "XADD sms * to +491701234567 text Your~code~is~4411 order 7319",
            "XADD sms * to +4917 text Courier~88~is~on~the~way order 7342",
            "XREADGROUP GROUP senders berlin-6 COUNT 2 STREAMS sms >",
        ],
    );
    until(|| raw.command(&["XLEN", "sms:dead"]) == Value::Integer(2), "both are dead letters");
    for line in [
        "XGROUP SETPOLICY sms senders IDLE 60000 MAXDELIVERIES 5 DLQ sms:dead",
        "XADD sms * to +491709876543 text A~voucher~for~you order 7350",
        "XADD sms * to +491701112223 text Delivered order 7319",
        "XADD sms * to +491704445556 text Your~code~is~4413 order 7361",
        "XREADGROUP GROUP senders berlin-6 COUNT 1 STREAMS sms >",
        "XGROUP CREATE sms billing $",
    ] {
        raw.command(&words(line));
    }
    raw
}

/// Keeps the server busy for a while, more or less so.
fn work(server: &Server) {
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for worker in 0..3_u64 {
            let (mut raw, has_ended) = (server.raw(), &has_ended);
            scope.spawn(move || {
                for turn in (0_u64..).take_while(|_| !has_ended.load(Ordering::Relaxed)) {
                    // No grants: the server remembers the latest only.
                    raw.command(&["HINCRBY", "orders:paid", &format!("minute-{worker}"), "1"]);
                    thread::sleep(Duration::from_micros((turn / 400 + worker) % 7 * 150));
                }
            });
        }
        thread::sleep(WORKS);
        has_ended.store(true, Ordering::Relaxed);
    });
}
