//! What the console shows when not all is well: replies that are too long, rights that are missing, streams that are
//! refused, changes that come while somebody looks.

use crate::console;
use crate::harness::{Raw, Value, until};
use crate::oracle::CHROMEDRIVER;

use super::{Browser, dead_letters, fill, signed_in, signed_in_as, words};

/// A thousand of these have more bytes than the replies to one request may have.
fn large(raw: &mut Raw) {
    let add = "local text = string.rep('x', 5000) \
               for i = 1, 1000 do \
                   redis.call('XADD', 'large:dead', '*', 'text', text .. i, 'dlq-stream', 'large', 'dlq-group', 'g', \
                              'dlq-id', '1-' .. i, 'dlq-deliveries', '1') \
               end \
               text = string.rep('y', 40000) \
               for i = 1, 200 do redis.call('HSET', 'large:hash', 'f' .. i, text .. i) end";
    raw.command(&["EVAL", add, "0"]);
}

#[test]
fn large_messages_and_elements_are_shown_some_at_a_time() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let mut raw = server.raw();
    large(&mut raw);
    let browser = signed_in(address, 1440, 900);
    browser.go(&format!("http://{address}/#/queues?key=t%3Alarge%3Adead"));
    browser.sees("1,000 found among 1,000 entries.");
    browser.go(&format!("http://{address}/#/keys?key=t%3Alarge%3Ahash"));
    browser.sees("of 200 are shown.");
    browser.find("//td[contains(.,'yyyyyyyy')]");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_stock_is_shown_without_the_holds_that_may_not_be_seen() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let mut clients = fill(&server);
    let rights = "resetchannels %R~* +@connection -@dangerous +stock.info +scan +type +info";
    clients[0].command(&words(&format!("ACL SETUSER viewer on >pass {rights}")));
    let browser = signed_in_as(address, "viewer", "pass");
    browser.go(&format!("http://{address}/#/stocks?key=t%3Astock%3A42"));
    browser.sees("Holds (1)");
    browser.find("//section[contains(.,'Holds (1)')]//p[contains(.,'Your user may not do this')]");
    browser.sees("440");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_refused_stream_is_not_called_a_lost_server() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (_server, address) = console::start(&[]);
    let session = console::sign_in(address, "", "");
    // As many pages as one user is shown the state on.
    let others: Vec<_> = (0..16).map(|_| session.stream("events")).collect();
    let browser = signed_in(address, 1440, 900);
    browser.sees("too many open pages");
    browser.sees("Unknown: the connection to the server is lost.");
    drop(others);
    browser.sees("Changes are in memory only");
    assert!(!browser.text().contains("too many open pages"));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// What was typed for one stream must not search another, whose dead letters are then put back by the dozen.
#[test]
fn a_search_stays_with_what_was_searched() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    dead_letters(&mut server.raw(), 5);
    let browser = signed_in(address, 1440, 900);
    browser.go(&format!("http://{address}/#/queues?key=t%3Ajobs%3Adead"));
    browser.sees("5 found among 5 entries.");
    // Typed and left at once, sooner than the field says so by itself.
    browser.run(
        "const field = document.querySelector('section input[type=search]'); \
         field.value = 'c3'; field.dispatchEvent(new Event('input', { bubbles: true })); \
         location.hash = '#/queues?key=t%3Ajobs'",
    );
    browser.find("//td[contains(.,'workers')]");
    std::thread::sleep(std::time::Duration::from_millis(600));
    let address_now = browser.run("return location.hash");
    assert!(!address_now.as_str().unwrap_or_default().contains("find"), "{address_now}");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn what_changes_is_shown_without_asking() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let mut raw = server.raw();
    raw.command(&words("XADD jobs:dead * not-a-dead-letter 1"));
    raw.command(&words("XTRIM jobs:dead MAXLEN 0"));
    let browser = signed_in(address, 1440, 900);
    browser.go(&format!("http://{address}/#/queues?key=t%3Ajobs%3Adead"));
    browser.sees("0 entries");
    dead_letters(&mut raw, 1);
    browser.sees("1 found among 1 entry.");
    raw.command(&words("SET short-lived v PX 600000"));
    browser.go(&format!("http://{address}/#/keys?key=t%3Ashort-lived"));
    browser.sees("9 min 5");
    let before = browser.text();
    until(|| browser.text() != before, "the time left becomes less");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_database_is_chosen_as_it_is_typed() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let mut raw = server.raw();
    raw.command(&["SELECT", "12"]);
    raw.command(&["LOCK.ACQUIRE", "lock:twelve", "ann", "PX", "600000"]);
    let browser = signed_in(address, 1440, 900);
    browser.go(&format!("http://{address}/#/locks"));
    browser.sees("There are no locks and gates.");
    let steps = browser.run("return history.length");
    browser.run("document.querySelector('input[type=number]').select()");
    browser.write("//input[@type='number']", "12");
    browser.sees("lock:twelve");
    assert_eq!(browser.run("return history.length"), steps, "no step for each digit");
    assert_eq!(browser.run("return document.activeElement.type"), "number", "the field keeps the focus");
    // What is no number is no database, and no reason to lose the connection.
    browser.go(&format!("http://{address}/#/locks?db=1.5"));
    browser.sees("There are no locks and gates.");
    assert!(!browser.text().contains("connection to the server is lost"));
    // A page that is loaded anew is shown what its address names.
    browser.go(&format!("http://{address}/#/locks?db=12"));
    browser.run("location.reload()");
    browser.sees("lock:twelve");
    browser.sees("1 found, all keys looked at");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn the_focus_comes_back_and_single_keys_can_be_switched_off() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let _clients = fill(&server);
    let browser = Browser::open(1440, 900);
    browser.go(&format!("http://{address}/"));
    browser.find("//button[.='Sign in']");
    let press = |key: &str| {
        let event = format!("new KeyboardEvent('keydown', {{ key: '{key}', bubbles: true }})");
        browser.run(&format!("document.activeElement.blur(); document.body.dispatchEvent({event})"));
    };
    press("?");
    browser.click("//button[.='Sign in']");
    browser.find("//nav");
    assert_eq!(browser.run("return document.querySelectorAll('dialog').length"), 0, "no key counts before");
    browser.go(&format!("http://{address}/#/locks?key=t%3Alock%3Areport"));
    browser.click("//button[.='Break the lock']");
    browser.click("//dialog//button[.='Cancel']");
    until(|| browser.run("return document.activeElement.innerText") == "Break the lock", "the focus comes back");
    press("?");
    browser.click("//dialog//input[@type='checkbox']");
    browser.click("//dialog//button[.='Close']");
    press("g");
    press("s");
    press("?");
    assert_eq!(browser.run("return document.querySelectorAll('dialog').length"), 0);
    assert!(browser.run("return location.hash").as_str().is_some_and(|hash| hash.starts_with("#/locks")));
    // Foreign choices of another program at this address are none.
    browser.run(
        "localStorage.setItem('tidegate.language', 'xx'); localStorage.setItem('language', 'xx'); location.reload()",
    );
    browser.sees("Locks and gates");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn an_empty_search_says_why_it_is_empty() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let mut clients = fill(&server);
    let browser = signed_in(address, 1440, 900);
    browser.go(&format!("http://{address}/#/stocks?q=nothing-such"));
    browser.sees("No name begins with nothing-such or matches it.");
    assert_eq!(clients[0].command(&["FLUSHALL"]), Value::ok());
    browser.go(&format!("http://{address}/#/stocks"));
    browser.sees("There are no stocks.");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// Of what was to be put back, some may be gone by then, and some may have nowhere to go.
#[test]
fn what_was_put_back_is_told_also_if_it_was_not_all() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let mut raw = server.raw();
    dead_letters(&mut raw, 3);
    let browser = signed_in(address, 1440, 900);
    browser.go(&format!("http://{address}/#/queues?key=t%3Ajobs%3Adead"));
    browser.click("//button[.='Put 3 back']");
    browser.sees("All groups of that stream get the message again");
    raw.command(&words("XTRIM jobs:dead MAXLEN 2"));
    browser.click("//dialog//button[.='Put back']");
    browser.sees("2 of 3 put back. The others were gone.");
    dead_letters(&mut raw, 2);
    raw.command(&words("XADD jobs:dead * text t dlq-stream taken dlq-group g dlq-id 1-1 dlq-deliveries 1"));
    raw.command(&words("SET taken by-a-string"));
    browser.click("//button[.='Put 3 back']");
    browser.click("//dialog//button[.='Put back']");
    browser.sees("2 of 3 put back, then: WRONGTYPE");
    browser.click("//dialog//button[.='Cancel']");
    browser.sees("1 found among 1 entry.");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn an_answer_about_a_limit_says_what_it_is_about() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let mut raw = server.raw();
    let key = b"caller:\xff";
    for _ in 0..2 {
        raw.command(&[&b"LIMIT.TAKE"[..], b"RULES", b"1", key, b"FIXED", b"1", b"600000"]);
    }
    let browser = signed_in(address, 1440, 900);
    browser.go(&format!("http://{address}/#/limits"));
    browser.sees("since the oldest refusal");
    browser.click("//a[.='What is left']");
    browser.write("//input[@name='max']", "1");
    browser.write("//input[@name='window-ms']", "600000\n");
    browser.find("//dl[contains(.,'caller:\\xff') and contains(.,'FIXED') and contains(.,'refuses')]");
    browser.click("//select[@name='kind']/option[.='EXACT']");
    until(|| !browser.text().contains("refuses"), "an answer about another rule is none");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn an_event_leads_to_the_screen_of_its_key() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let _clients = fill(&server);
    let browser = signed_in(address, 1440, 900);
    for (row, screen) in [
        ("contains(.,'dead letter') and contains(.,'jobs')", "#/queues?key=t%3Ajobs"),
        ("contains(.,'refused') and contains(.,'caller:7')", "#/limits?of=t%3Acaller%3A7&kind=FIXED"),
        ("contains(.,'sold')", "#/stocks?key=t%3Astock%3A42"),
        ("contains(.,'gate:device')", "#/locks?key=t%3Agate%3Adevice"),
    ] {
        browser.go(&format!("http://{address}/#/events"));
        browser.click(&format!("//tbody/tr[{row}]//a"));
        until(|| browser.run("return location.hash") == screen, screen);
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// A mistake in drawing a screen stops this screen, and no other.
#[test]
fn a_screen_that_can_not_be_drawn_says_so() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let _clients = fill(&server);
    let browser = signed_in(address, 1440, 900);
    browser.go(&format!("http://{address}/#/locks?key=t%3Alock%3Areport"));
    browser.sees("worker-7");
    // A state as no server sends it.
    browser.run(
        "import(document.querySelector('script[type=module]').src.replace('main.js', 'live.js')) \
             .then(({ topics }) => (topics.value = { who: { 't:lock:report': { type: 'lock', holders: [null] } } }))",
    );
    browser.sees("This screen can't be drawn");
    let complaints = browser.complaints();
    assert!(!complaints.is_empty() && complaints.iter().all(|one| one.contains("TypeError")), "{complaints:?}");
    browser.click("//nav//a[.='Overview']");
    browser.sees("Changes are in memory only");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
