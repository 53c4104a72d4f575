//! What a reader does in the console: the command behind each button, what the page says of it, and that nothing
//! happens to a grant that nobody looked at.

use crate::console;
use crate::harness::{Raw, Value, until};
use crate::oracle::CHROMEDRIVER;

use super::{Browser, fill, signed_in};

/// Clicks a button, and the one of the same name in the dialog that asks.
fn act(browser: &Browser, path: &str, verb: &str) {
    browser.click(path);
    browser.click(&format!("//dialog//button[.='{verb}']"));
}

/// What a reply says, for a look at a word of it.
fn said(raw: &mut Raw, line: &str) -> String {
    format!("{:?}", raw.command(&super::words(line)))
}

#[test]
fn a_place_of_a_gate_and_an_order_of_a_stock_are_taken_away() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let mut clients = fill(&server);
    let browser = signed_in(address, 1440, 900);
    browser.go(&format!("http://{address}/#/locks?key=t%3Agate%3Adevice"));
    act(&browser, "//tr[contains(.,'job-1')]//button[.='Take away']", "Take away");
    browser.sees("The place is free.");
    let holders = said(&mut clients[0], "GATE.HOLDERS gate:device 0");
    assert!(!holders.contains("job-1") && holders.contains("job-2"), "{holders}");
    browser.go(&format!("http://{address}/#/stocks?key=t%3Astock%3A42"));
    act(&browser, "//tr[contains(.,'order-2')]//button[.='Cancel order']", "Cancel order");
    browser.sees("40 units are available again.");
    assert!(!said(&mut clients[0], "STOCK.HOLDS stock:42 0").contains("order-2"));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// A note takes time to type. Meanwhile the name may have come back, with another grant.
#[test]
fn nothing_is_done_to_a_grant_that_the_reader_did_not_see() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let mut clients = fill(&server);
    let browser = signed_in(address, 1440, 900);
    for (path, row, verb, end, again) in [
        (
            "locks?key=t%3Alock%3Areport",
            "worker-7",
            "Break",
            "LOCK.BREAK lock:report",
            "LOCK.BREAK lock:report worker-9",
        ),
        (
            "locks?key=t%3Agate%3Adevice",
            "job-1",
            "Take away",
            "GATE.RELEASE gate:device job-1",
            "GATE.ACQUIRE gate:device job-1 LIMIT 2 PX 600000",
        ),
        (
            "stocks?key=t%3Astock%3A42",
            "order-2",
            "Cancel order",
            "STOCK.CANCEL stock:42 order-2",
            "STOCK.RESERVE stock:42 order-2 UNITS 40 PX 600000",
        ),
    ] {
        browser.go(&format!("http://{address}/#/{path}"));
        browser.click(&format!("//tr[contains(.,'{row}')]//button[.='{verb}']"));
        said(&mut clients[0], end);
        said(&mut clients[0], again);
        if verb == "Break" {
            said(&mut clients[0], "LOCK.ACQUIRE lock:report worker-7:3f2a PX 600000");
        }
        browser.click(&format!("//dialog//button[.='{verb}']"));
        browser.find("//dialog//p[contains(.,'Nothing was done')]");
        browser.click("//dialog//button[.='Cancel']");
    }
    assert!(said(&mut clients[0], "WHO lock:report").contains("worker-7"));
    assert!(said(&mut clients[0], "WHO gate:device").contains("job-1"));
    assert!(said(&mut clients[0], "WHO stock:42").contains("order-2"));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// One holder is broken by name; of many the dialog says that all of them are.
#[test]
fn a_shared_lock_is_broken_as_a_whole_or_by_holder() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let mut raw = server.raw();
    for name in ["ann", "bob", "cid"] {
        raw.command(&["LOCK.ACQUIRE", "lock:shared", name, "SHARED", "PX", "600000"]);
    }
    let browser = signed_in(address, 1440, 900);
    browser.go(&format!("http://{address}/#/locks?key=t%3Alock%3Ashared"));
    browser.click("//tr[contains(.,'ann')]//button[.='Break']");
    browser.sees("The other holders keep it.");
    browser.click("//dialog//button[.='Break']");
    browser.sees("Holders (2)");
    browser.click("//button[.='Break the lock']");
    browser.sees("also those that get it until then");
    browser.click("//dialog//button[.='Break']");
    browser.sees("Nobody holds it.");
    assert!(said(&mut raw, "LOCK.INFO lock:shared").contains("free"));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_key_is_deleted_and_a_request_forgotten() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let mut clients = fill(&server);
    let browser = signed_in(address, 1440, 900);
    browser.go(&format!("http://{address}/#/keys?key=t%3Auser%3A1"));
    browser.sees("ann");
    act(&browser, "//button[.='Delete']", "Delete");
    browser.sees("The key is deleted.");
    browser.sees("There is no such key.");
    assert_eq!(clients[0].command(&["EXISTS", "user:1"]), Value::Integer(0));
    browser.go(&format!("http://{address}/#/once"));
    browser.write("//input[@placeholder='order:77']", "order:77\n");
    browser.sees("It has run");
    act(&browser, "//button[.='Forget']", "Forget");
    browser.sees("The request is forgotten.");
    browser.sees("a call with this id would run");
    assert_eq!(clients[0].command(&["EXISTS", "order:77"]), Value::Integer(0));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_connection_is_closed() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let mut other = server.raw();
    other.command(&["CLIENT", "SETNAME", "the-other-one"]);
    let browser = signed_in(address, 1440, 900);
    browser.go(&format!("http://{address}/#/clients?q=the-other-one"));
    act(&browser, "//tr[contains(.,'the-other-one')]//button[.='Close']", "Close");
    browser.sees("The connection is closed.");
    browser.sees("No client matches.");
    assert_eq!(other.read_to_end(), b"", "it was closed");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// SCRIPT KILL does not end a function, nor FUNCTION KILL a script.
#[test]
fn a_script_and_a_function_that_hold_the_server_are_ended() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&["--busy-reply-threshold", "50"]);
    let mut raw = server.raw();
    let library = "#!lua name=busy\nredis.register_function('spins', function() while true do end end)";
    raw.command(&["FUNCTION", "LOAD", library]);
    let browser = signed_in(address, 1440, 900);
    for (call, named) in [
        (&["EVAL", "while true do end", "0"][..], "A script, which the server's log names."),
        (&["FCALL", "spins", "0"][..], "spins"),
    ] {
        raw.send_command(call);
        browser.click("//button[.='End the script']");
        browser.find(&format!("//dialog//p[contains(.,\"{named}\")]"));
        browser.click("//dialog//button[.='End it']");
        browser.sees("It is told to end.");
        assert!(matches!(raw.reply().value, Value::Error(_)), "{call:?}");
        until(|| !browser.text().contains("End the script"), "nothing holds the server");
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn scripts_are_checked_and_traced() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (_server, address) = console::start(&[]);
    let browser = signed_in(address, 1440, 900);
    browser.go(&format!("http://{address}/#/scripts"));
    browser.write("//textarea[@name='text']", "return redis.call('GET', 'a' .. ARGV[1])");
    browser.click("//button[.='Check']");
    browser.find("//section[contains(.,'Text of a script')]//pre[string-length(.) > 10]");
    browser.write("//input[@name='words']", "lock_acquire 1 lock:traced ann 30000 \"\n");
    browser.sees("A quote is not closed.");
    browser.run("document.querySelector('input[name=words]').value = ''");
    browser.write("//input[@name='words']", "lease_gate_acquire 1 gate:traced job-1 3 30000\n");
    browser.find("//section[contains(.,'Trace a call')]//pre[contains(.,'gate:traced')]");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn the_command_line_runs_what_is_typed() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let browser = signed_in(address, 1440, 900);
    browser.go(&format!("http://{address}/#/command"));
    let field = "//form//input[@data-search]";
    for (line, reply) in [
        ("SET \"中\\xff\" 'two words'", "OK"),
        ("GET \"中\\xff\"", "\"two words\""),
        ("HELLO 3", "=> (integer) 3"),
        ("ZADD z 1.5 a", "(integer) 1"),
        ("ZMSCORE z a nobody", "(double) 1.5"),
        ("GET \"open", "A quote is not closed."),
        ("NOSUCH", "(error) ERR unknown command"),
        ("COMMAND LIST", "1) "),
        ("ECHO the-end", "\"the-end\""),
    ] {
        browser.write(field, &format!("{line}\n"));
        browser.sees(reply);
    }
    let key = ["中".as_bytes(), b"\xff"].concat();
    assert_eq!(server.raw().command(&[&b"GET"[..], &key]), Value::bulk("two words"));
    let below = "const log = document.querySelector('[role=log]'); \
                 return log.scrollHeight - log.clientHeight - log.scrollTop";
    until(|| browser.run(below).as_f64().is_some_and(|below| below < 2.0), "the newest reply is in view");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
