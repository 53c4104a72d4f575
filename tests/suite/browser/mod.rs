//! The console in a real browser: each screen, each action, languages, themes and widths, a server that comes and goes.
//!
//! Debian's chromium and chromium-driver; without them these tests are left out. `SUITE_PICTURES=FOLDER` keeps a
//! picture of each screen there.

mod acts;
mod costs;
mod driver;
mod pictures;
mod troubles;

use std::net::SocketAddr;
use std::path::Path;

use crate::console;
use crate::harness::{Raw, Server, Value, until};
use crate::oracle::{AXE, CHROMEDRIVER};
use driver::Browser;

/// Opens the console of a server and signs in without a password.
fn signed_in(address: SocketAddr, width: u32, height: u32) -> Browser {
    let browser = Browser::open(width, height);
    browser.go(&format!("http://{address}/"));
    browser.click("//button[.='Sign in']");
    browser.find("//nav");
    browser
}

/// Opens the console of a server and signs in as this user.
fn signed_in_as(address: SocketAddr, user: &str, password: &str) -> Browser {
    let browser = Browser::open(1440, 900);
    browser.go(&format!("http://{address}/"));
    browser.write("//input[@name='user']", user);
    browser.write("//input[@name='password']", &format!("{password}\n"));
    browser.find("//nav");
    browser
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Locks, gates, stocks, queues and other things to look at.
fn fill(server: &Server) -> Vec<Raw> {
    let mut raw = server.raw();
    for line in [
        "LOCK.ACQUIRE lock:report worker-7:3f2a PX 600000 NOTE monthly-figures",
        "LOCK.ACQUIRE lock:report worker-8:a001 PX 30000",
        "GATE.ACQUIRE gate:device job-1 LIMIT 2 PX 600000",
        "GATE.ACQUIRE gate:device job-2 LIMIT 2 PX 600000",
        "STOCK.SET stock:42 500 LOW 100 5000",
        "STOCK.RESERVE stock:42 order-1 UNITS 20 PX 600000 PER ann 40",
        "STOCK.RESERVE stock:42 order-2 UNITS 40 PX 600000 PER bob 40",
        "STOCK.COMMIT stock:42 order-1",
        "LIMIT.TAKE RULES 1 caller:7 FIXED 1 600000",
        "LIMIT.TAKE RULES 1 caller:7 FIXED 1 600000",
        "ID.NEXT ids:order",
        "ONCE order:77 EX 86400 INCR runs",
        "HSET user:1 name ann age 30",
        "XADD reminders DELAY 3600000 * order 77",
    ] {
        raw.command(&words(line));
    }
    raw.command(&[
        "LOCK.ACQUIRE",
        "lock:<img src=x onerror=alert(1)>",
        "<script>alert(2)</script>",
        "PX",
        "600000",
        "NOTE",
        "<b onclick=alert(3)>",
    ]);
    raw.command(&["SET", "text:<svg onload=alert(4)>", "\"><script>alert(5)</script>"]);
    dead_letters(&mut raw, 30);
    let mut waiter = server.raw();
    waiter.send_command(&["LOCK.ACQUIRE", "lock:report", "worker-9", "PX", "600000", "BLOCK", "0"]);
    vec![raw, waiter]
}

/// Makes dead letters of this many messages.
fn dead_letters(raw: &mut Raw, count: usize) {
    for line in
        ["XGROUP CREATE jobs workers 0 MKSTREAM", "XGROUP SETPOLICY jobs workers IDLE 1 MAXDELIVERIES 1 DLQ jobs:dead"]
    {
        raw.command(&words(line));
    }
    let add = "for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'order', i, 'customer', 'c' .. i % 7) end";
    raw.command(&["EVAL", add, "1", "jobs", &count.to_string()]);
    raw.command(&["XREADGROUP", "GROUP", "workers", "ann", "COUNT", &count.to_string(), "STREAMS", "jobs", ">"]);
    until(|| raw.command(&["XLEN", "jobs:dead"]) == Value::Integer(count as i64), "all are dead letters");
}

/// The screens, and a text that each of them shows for [`fill`] in every language.
const SCREENS: [(&str, &str, &str); 14] = [
    ("overview", "overview", env!("CARGO_PKG_VERSION")),
    ("locks", "locks", "lock:report"),
    ("lock", "locks?key=t%3Alock%3Areport", "worker-9"),
    ("gate", "locks?key=t%3Agate%3Adevice", "job-2"),
    ("stocks", "stocks?key=t%3Astock%3A42", "order-2"),
    ("limits", "limits", "caller:7"),
    ("queues", "queues?key=t%3Ajobs%3Adead", "customer: c3"),
    ("once", "once", "ONCE"),
    ("events", "events", "gate:device"),
    ("scripts", "scripts", "lock_acquire"),
    ("clients", "clients", "console"),
    ("keys", "keys?key=t%3Auser%3A1", "ann"),
    ("memory", "keys?by=1", "%"),
    ("command", "command", "SELECT"),
];

fn keep_picture(browser: &Browser, name: &str) {
    let Ok(folder) = std::env::var("SUITE_PICTURES") else { return };
    let picture = browser.picture();
    let path = Path::new(&folder).join(format!("{name}.png"));
    std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(path, base64(&picture))).expect("a writable folder");
}

/// The bytes that base64 stands for.
fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for digit in text.bytes().filter_map(|byte| DIGITS.iter().position(|digit| *digit == byte)) {
        (bits, count) = (bits << 6 | digit as u32, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

/// Elements that only a key or a note could have made.
const FOREIGN: &str =
    "return document.querySelectorAll('body script, img:not([src^=\"/assets/\"]), b, [onload]').length";

/// All that a page says, also to those who can't see it.
const SAID: &str = "return [document.body.innerText, ...[...document.querySelectorAll('*')].flatMap((element) => \
     ['aria-label', 'placeholder', 'title'].map((name) => element.getAttribute(name) || ''))].join('\\n')";

/// Parts of a page that can be scrolled by keys, and do not say what they are.
const UNNAMED: &str =
    "return [...document.querySelectorAll('[role=region]')].filter((part) => !part.getAttribute('aria-label')).length";

/// The names of texts: one that is shown itself has no text.
fn names_of_texts() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("console/lang/en.js");
    let texts = std::fs::read_to_string(path).expect("texts");
    let names = texts.lines().filter_map(|line| line.trim().strip_prefix('"')?.split_once("\": "));
    names.map(|(name, _)| name.to_owned()).filter(|name| name.contains('.')).collect()
}

/// Looks at each screen: it shows what it should, fits, and has no element and no name of a text that do not belong
/// there.
fn look_at_each(browser: &Browser, address: SocketAddr, screens: &[(&str, &str, &str)], picture: &str) {
    let names = names_of_texts();
    for (screen, path, text) in screens {
        browser.go(&format!("http://{address}/#/{path}"));
        browser.sees(text);
        let wide = browser.run("return document.documentElement.scrollWidth - innerWidth");
        assert!(wide.as_i64().is_some_and(|wide| wide <= 0), "{screen}, {picture}: {wide} pixels too wide");
        assert_eq!(browser.run(FOREIGN), 0, "{screen}");
        let said = browser.run(SAID);
        let said: Vec<&str> = said.as_str().expect("texts").split_whitespace().collect();
        let bare = names.iter().find(|name| said.contains(&name.as_str()));
        assert_eq!(bare, None, "{screen}, {picture}");
        assert_eq!(browser.run(UNNAMED), 0, "{screen}");
        keep_picture(browser, &format!("{screen}-{picture}"));
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn every_screen_is_drawn_in_each_theme_language_and_width() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&["--appendonly", "yes"]);
    let _clients = fill(&server);
    for (width, height, theme, language, picture) in [
        (1440, 900, "light", "en", "wide"),
        (1440, 900, "dark", "en", "dark"),
        (390, 844, "light", "en", "phone"),
        (2560, 1300, "light", "en", "huge"),
        (1440, 900, "light", "zh-CN", "chinese"),
        (390, 844, "dark", "zh-CN", "chinese-phone"),
    ] {
        let browser = signed_in(address, width, height);
        if language == "zh-CN" {
            browser.click("//button[.='中文']");
            browser.sees("锁与闸门");
        }
        browser.run(&format!("document.documentElement.dataset.theme = '{theme}'"));
        assert_eq!(browser.run("return document.documentElement.lang"), language);
        look_at_each(&browser, address, &SCREENS, picture);
    }
}

/// Asks axe-core for barriers: each as its rule and the elements that it is about.
const BARRIERS: &str = "window.barriers = null; \
     axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }).then((found) => { \
         barriers = found.violations.map((one) => one.id + ': ' + one.nodes.map((node) => node.html).join('  ')); \
     }, (error) => { barriers = [String(error)]; })";

/// Names of elements, their contrast, what can be reached by keys: what a program can tell of WCAG.
#[test]
fn no_screen_has_a_barrier() {
    if CHROMEDRIVER.is_missing() || AXE.is_missing() {
        return;
    }
    let axe = std::fs::read_to_string(std::env::var("SUITE_AXE").expect("it is named")).expect("axe.min.js");
    let (server, address) = console::start(&["--appendonly", "yes"]);
    let _clients = fill(&server);
    let mut found = Vec::new();
    let mut look = |browser: &Browser, screen: &str| {
        browser.run(BARRIERS);
        until(|| !browser.run("return barriers").is_null(), "axe has looked");
        let barriers = browser.run("return barriers");
        found.extend(barriers.as_array().into_iter().flatten().map(|one| format!("{screen}: {one}")));
    };
    for (width, theme) in [(1440, "light"), (1440, "dark"), (390, "light")] {
        let browser = Browser::open(width, 900);
        browser.go(&format!("http://{address}/"));
        browser.find("//button[.='Sign in']");
        browser.run(&axe);
        browser.run(&format!("document.documentElement.dataset.theme = '{theme}'"));
        look(&browser, "sign-in");
        browser.click("//button[.='Sign in']");
        browser.find("//nav");
        for (screen, path, text) in SCREENS {
            browser.go(&format!("http://{address}/#/{path}"));
            browser.sees(text);
            look(&browser, &format!("{screen}, {theme}, {width}"));
        }
        browser.go(&format!("http://{address}/#/{}", SCREENS[2].1));
        browser.click("//button[.='Break the lock']");
        browser.find("//dialog//button[.='Break']");
        look(&browser, &format!("a question, {theme}, {width}"));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The widest state of the bar, on the narrowest screen.
#[test]
fn a_server_that_refuses_changes_fits_a_phone() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&["--save", "900 1"]);
    let mut raw = server.raw();
    let dir = format!("{:?}", raw.command(&["CONFIG", "GET", "dir"]));
    let dir = dir.split('"').nth(3).expect("a folder").to_owned();
    raw.command(&["LOCK.ACQUIRE", "lock:report", "worker-9", "PX", "600000"]);
    // Where a snapshot's folder would be, there is a file.
    std::fs::write(Path::new(&dir).join("tidegate-data"), "").expect("a new file");
    raw.command(&["BGSAVE"]);
    until(|| matches!(raw.command(&["SET", "k", "v"]), Value::Error(_)), "changes are refused");
    let screens = [SCREENS[0], ("lock", "locks?key=t%3Alock%3Areport", "worker-9")];
    let browser = signed_in(address, 390, 844);
    browser.sees("refuses changes");
    look_at_each(&browser, address, &screens, "phone-unlogged");
    browser.click("//button[.='中文']");
    browser.sees("拒绝修改");
    look_at_each(&browser, address, &screens, "chinese-phone-unlogged");
}

#[test]
fn names_that_look_like_html_stay_text() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let _clients = fill(&server);
    let browser = signed_in(address, 1440, 900);
    let key = "lock%3A%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E";
    for (path, text) in [
        ("locks".to_owned(), "lock:<img src=x onerror=alert(1)>"),
        (format!("locks?key=t%3A{key}"), "<b onclick=alert(3)>"),
        ("events".to_owned(), "<script>alert(2)</script>"),
        ("keys?key=t%3Atext%3A%3Csvg%20onload%3Dalert(4)%3E".to_owned(), "\"><script>alert(5)</script>"),
    ] {
        browser.go(&format!("http://{address}/#/{path}"));
        browser.sees(text);
        assert_eq!(browser.run(FOREIGN), 0, "{path}");
    }
    assert_eq!(browser.complaints(), Vec::<String>::new(), "nothing was run, and nothing had to be forbidden");
}

/// Clicks to something that should be easily found.
const CLICKS_MAX: usize = 4;

/// Who holds a given lock, and to break it.
#[test]
fn a_lock_is_found_and_broken() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let mut clients = fill(&server);
    many_locks(&mut clients[0]);
    let browser = signed_in(address, 1440, 900);
    let clicks = browser.clicks();
    browser.click("//nav//a[.='Locks and gates']");
    browser.write("//input[@data-search]", "lock:report\n");
    browser.sees("monthly-figures");
    browser.click("//tr[contains(.,'worker-7')]//button[.='Break']");
    browser.write("//dialog//input[@name='note']", "stuck since noon");
    browser.click("//dialog//button[.='Break']");
    browser.sees("The lock is broken.");
    assert!(browser.clicks() - clicks <= CLICKS_MAX);
    browser.sees("stuck since noon");
    assert!(matches!(clients[1].reply().value, Value::Array(_)), "the next one has it");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// One of 10,000 dead letters, found and put back.
#[test]
fn a_dead_letter_is_found_and_put_back() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let mut raw = server.raw();
    dead_letters(&mut raw, 10_000);
    let browser = signed_in(address, 1440, 900);
    let clicks = browser.clicks();
    browser.click("//nav//a[.='Queues']");
    browser.click("//a[.='jobs:dead']");
    browser.sees("10,000 found among 10,000 entries.");
    browser.write("//section//input[contains(@placeholder,'Text in a field')]", "order: 7777\n");
    browser.sees("1 found among 10,000 entries.");
    browser.click("//tbody//button[.='Put back']");
    browser.sees("order: 7777");
    browser.click("//dialog//button[.='Put back']");
    browser.sees("1 put back.");
    assert!(browser.clicks() - clicks <= CLICKS_MAX);
    assert_eq!(raw.command(&["XLEN", "jobs:dead"]), Value::Integer(9_999));
    let last = format!("{:?}", raw.command(&["XREVRANGE", "jobs", "+", "-", "COUNT", "1"]));
    assert!(last.contains("\"7777\""), "{last}");
    // All that a search has found, which stays as it is.
    browser.go(&format!("http://{address}/#/queues?key=t%3Ajobs%3Adead&find=c3"));
    browser.sees("1,429 found among 9,999 entries.");
    browser.click("//button[.='Put 1,429 back']");
    browser.sees("Put 1,429 dead letters back?");
    browser.click("//dialog//button[.='Put back']");
    browser.sees("1,429 put back.");
    browser.sees("0 found among 8,570 entries.");
    assert_eq!(raw.command(&["XLEN", "jobs:dead"]), Value::Integer(8_570));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// Takes 100,000 locks, in parts that are too short for a waiting client to be told BUSY.
fn many_locks(raw: &mut Raw) {
    let take = "for i = 1, 10000 do redis.call('LOCK.ACQUIRE', 'many:' .. ARGV[1] .. i, 'one', 'PX', 6000000) end";
    for part in 0..10 {
        raw.command(&["EVAL", take, "0", &format!("{part}:")]);
    }
}

/// Lists have an end, however much there is.
#[test]
fn one_is_found_among_a_million_keys_and_a_hundred_thousand_locks() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&["--enable-debug-command", "yes"]);
    let mut raw = server.raw();
    raw.command(&["DEBUG", "POPULATE", "1000000"]);
    many_locks(&mut raw);
    raw.command(&["SET", "the-only-one", "found me"]);
    raw.command(&["LOCK.ACQUIRE", "the-only-lock", "worker-7", "PX", "6000000"]);
    let browser = signed_in(address, 1440, 900);
    let rows = || browser.run("return document.querySelectorAll('tbody tr').length").as_u64().unwrap_or_default();
    for (screen, text, at_a_time) in [("keys", "100 found so far", 100), ("locks", "50 found so far", 50)] {
        browser.go(&format!("http://{address}/#/{screen}"));
        browser.sees(text);
        assert_eq!(rows(), at_a_time, "{screen}");
        browser.click("//button[.='Look on']");
        browser.sees(&format!("{} found so far", 2 * at_a_time));
        assert_eq!(rows(), 2 * at_a_time, "{screen}");
    }
    // A beginning is looked for among all keys; a whole name is found at once.
    for (path, key, text) in
        [("keys?q=the-only", "the-only-one", "found me"), ("locks?q=the-only-lock", "the-only-lock", "worker-7")]
    {
        browser.go(&format!("http://{address}/#/{path}"));
        browser.click(&format!("//a[.='{key}']"));
        browser.sees(text);
    }
    browser.go(&format!("http://{address}/#/overview"));
    browser.sees("1,100,002");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn what_is_shown_and_done_belongs_to_its_database() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let (mut zero, mut three) = (server.raw(), server.raw());
    three.command(&["SELECT", "3"]);
    for (raw, name) in [(&mut zero, "zero"), (&mut three, "three")] {
        raw.command(&["LOCK.ACQUIRE", "lock:same", name, "PX", "600000"]);
        raw.command(&["SET", "text", &format!("in {name}")]);
        raw.command(&["XGROUP", "CREATE", "jobs", name, "0", "MKSTREAM"]);
    }
    let browser = signed_in(address, 1440, 900);
    for (path, texts) in [
        ("keys?key=t%3Atext", ["in zero", "in three"]),
        ("queues?key=t%3Ajobs", ["zero", "three"]),
        ("locks?key=t%3Alock%3Asame", ["zero", "three"]),
    ] {
        browser.go(&format!("http://{address}/#/{path}"));
        browser.sees(texts[0]);
        browser.go(&format!("http://{address}/#/{path}&db=3"));
        browser.sees(texts[1]);
        assert!(!browser.text().contains(texts[0]), "{path}");
    }
    // The question is about what was shown, wherever the address leads in the meantime.
    browser.click("//tr[contains(.,'three')]//button[.='Break']");
    browser.go(&format!("http://{address}/#/locks?key=t%3Alock%3Asame"));
    browser.click("//dialog//button[.='Break']");
    browser.sees("The lock is broken.");
    let is_free = |raw: &mut Raw| {
        let taken = raw.command(&["LOCK.ACQUIRE", "lock:same", "other", "PX", "600000"]);
        matches!(taken, Value::Array(said) if said.first() == Some(&Value::Integer(1)))
    };
    assert_eq!((is_free(&mut zero), is_free(&mut three)), (false, true));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn only_a_kept_reply_says_that_a_request_has_run() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let mut raw = server.raw();
    raw.command(&words("ONCE order:77 EX 86400 INCR runs"));
    let browser = signed_in(address, 1440, 900);
    browser.go(&format!("http://{address}/#/once"));
    browser.write("//input[@placeholder='order:77']", "runs\n");
    browser.sees("The key holds something else");
    assert!(!browser.text().contains("Forget"));
    browser.run("document.querySelector(\"input[placeholder='order:77']\").value = ''");
    browser.write("//input[@placeholder='order:77']", "order:77\n");
    browser.sees("It has run");
    browser.find("//button[.='Forget']");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_viewer_is_told_what_is_not_allowed() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let mut clients = fill(&server);
    let rights = "resetchannels %R~lock:* +@connection -@dangerous +who +why +events +scan +type +info";
    clients[0].command(&words(&format!("ACL SETUSER viewer on >pass {rights}")));
    let browser = Browser::open(1440, 900);
    browser.go(&format!("http://{address}/"));
    browser.write("//input[@name='user']", "viewer");
    browser.write("//input[@name='password']", "wrong\n");
    browser.sees("No such user, or another password.");
    browser.run("document.querySelector('input[name=password]').value = ''");
    browser.write("//input[@name='password']", "pass\n");
    browser.find("//nav");
    browser.go(&format!("http://{address}/#/locks?key=t%3Alock%3Areport"));
    browser.click("//tr[contains(.,'worker-7')]//button[.='Break']");
    browser.click("//dialog//button[.='Break']");
    browser.find("//dialog//p[contains(.,'Your user may not do this')]");
    browser.click("//dialog//button[.='Cancel']");
    browser.go(&format!("http://{address}/#/clients"));
    browser.sees("Your user may not do this");
    browser.click("//button[.='Sign out']");
    browser.find("//button[.='Sign in']");
}

#[test]
fn a_lost_server_is_noticed_and_found_again() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let browser = signed_in(address, 1440, 900);
    browser.sees("Changes are in memory only");
    drop(server);
    browser.sees("The connection to the server is lost.");
    let _server = console::start_at(address, &[]);
    // Its sessions have ended with it.
    browser.click("//button[.='Sign in']");
    browser.sees("Changes are in memory only");
}
