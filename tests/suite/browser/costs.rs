//! What takes time and memory: hot keys, and memory by prefix.

use crate::console;
use crate::harness::{Raw, Value, until};
use crate::oracle::CHROMEDRIVER;

use super::{Browser, SAID, keep_picture, signed_in, signed_in_as, words};

/// Whether nothing of the page is beside the screen.
fn fits(browser: &Browser) -> bool {
    browser.run("return document.documentElement.scrollWidth <= innerWidth") == true
}

#[test]
fn hot_keys_are_measured_while_somebody_wants_it() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let mut raw = server.raw();
    let browser = signed_in(address, 390, 844);
    browser.go(&format!("http://{address}/#/clients"));
    // By keys alone: the return key on a button.
    browser.write("//button[.='Measure for a minute']", "\n");
    browser.sees("Measuring for");
    for _ in 0..100 {
        raw.command(&["INCRBY", "order:<b>1", "1"]);
    }
    raw.command(&["GET", "order:2"]);
    let row = "//section[contains(.,'Hot keys')]//tr[contains(.,'order:<b>1') and contains(.,'%')]";
    browser.find(row);
    browser.find("//section[contains(.,'Hot keys')]//tr[contains(.,'order:2')]");
    assert!(fits(&browser));
    browser.run("document.querySelector('main').lastElementChild.scrollIntoView()");
    keep_picture(&browser, "hot-phone");
    browser.write("//section[contains(.,'Hot keys')]//button[.='Stop']", "\n");
    browser.sees("Measured for");
    assert_ne!(raw.command(&["HOTKEYS", "GET"]), Value::Null, "the result stays");
    browser.run("location.reload()");
    browser.find(row);
    browser.click("//button[.='Discard']");
    until(|| raw.command(&["HOTKEYS", "GET"]) == Value::Null, "nothing is kept");
    until(|| !browser.text().contains("order:<b>1"), "nothing is shown");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// Keys of several prefixes, of which the orders have the most memory.
fn prefixes(raw: &mut Raw) {
    let add = "for i = 1, 300 do redis.call('SET', 'order:paid:' .. i, string.rep('x', 500)) end \
               for i = 1, 100 do redis.call('SET', 'order:open:' .. i, 'x') end \
               for i = 1, 50 do redis.call('HSET', 'courier:' .. i, 'name', 'c' .. i) end \
               redis.call('SET', 'config', 'x') redis.call('SET', 'odd:*', 'x')";
    raw.command(&["EVAL", add, "0"]);
}

#[test]
fn memory_is_shown_by_prefix() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    prefixes(&mut server.raw());
    let browser = signed_in(address, 390, 844);
    browser.go(&format!("http://{address}/#/keys"));
    browser.click("//button[.='Memory by prefix']");
    browser.sees("452 keys measured");
    browser.sees("That is all.");
    let panel = "//section[.//h2[.='Memory by prefix']]";
    browser.find(&format!("{panel}//tbody/tr[1][contains(.,'order:') and contains(.,'400')]"));
    browser.find(&format!("{panel}//tr[contains(.,'courier:') and contains(.,'50')]"));
    browser.find(&format!("{panel}//tr[contains(.,'names without a colon')]"));
    assert!(fits(&browser));
    // Two parts of each name, of the same sample.
    browser.click(&format!("{panel}//select/option[.='2']"));
    browser.find(&format!("{panel}//tbody/tr[1][contains(.,'order:paid:') and contains(.,'300')]"));
    browser.click(&format!("{panel}//select/option[.='1']"));
    // A prefix leads to its own keys, which are then all that is measured.
    browser.click(&format!("{panel}//a[.='order:']"));
    browser.sees("400 keys measured");
    browser.find(&format!("{panel}//tr[contains(.,'order:open:') and contains(.,'100')]"));
    assert_eq!(browser.run("return document.querySelector('[data-search]').value"), "order:");
    browser.click("//button[.='中文']");
    browser.sees("已测量 400 个键");
    let said = browser.run(SAID);
    let said = said.as_str().expect("texts");
    assert!(!said.contains("memory.") && !said.contains("Memory by"), "{said}");
    browser.click(&format!("{}//button[.='关闭']", panel.replace("Memory by prefix", "按前缀统计内存")));
    until(|| !browser.text().contains("已测量"), "it is closed");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// A look at many keys ends by itself, or when the reader wants it to.
#[test]
fn memory_is_a_sample_of_many_keys() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&["--enable-debug-command", "yes"]);
    server.raw().command(&words("DEBUG POPULATE 200000"));
    let browser = signed_in(address, 1440, 900);
    browser.go(&format!("http://{address}/#/keys?by=1"));
    let panel = "//section[.//h2[.='Memory by prefix']]";
    browser.click(&format!("{panel}//button[.='Look on']"));
    browser.click(&format!("{panel}//button[.='Stop']"));
    browser.find(&format!("{panel}//button[.='Look on']"));
    let measured = |browser: &Browser| {
        let text = browser.text();
        let (before, _) = text.split_once(" keys measured").expect("how many");
        let digits = before.rsplit(char::is_whitespace).next().unwrap_or_default().replace(',', "");
        digits.parse::<u32>().expect("a number")
    };
    let first = measured(&browser);
    assert!((20_000..60_000).contains(&first), "{first} keys");
    browser.sees("the database has 200,000");
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(measured(&browser), first, "it has stopped");
    browser.click("//nav//a[.='Overview']");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn what_costs_is_told_only_to_who_may_see_it() {
    if CHROMEDRIVER.is_missing() {
        return;
    }
    let (server, address) = console::start(&[]);
    let mut raw = server.raw();
    prefixes(&mut raw);
    let rights = "resetchannels %R~order:* +@connection -@dangerous +scan +type +pttl +info +dbsize +memory|usage";
    raw.command(&words(&format!("ACL SETUSER viewer on >pass {rights}")));
    let browser = signed_in_as(address, "viewer", "pass");
    browser.go(&format!("http://{address}/#/clients"));
    browser.find("//section[contains(.,'Hot keys')]//p[contains(.,'Your user may not do this')]");
    browser.click("//button[.='Measure for a minute']");
    browser.find("//*[@role='status']/div[contains(.,'Your user may not do this')]");
    assert_eq!(raw.command(&["HOTKEYS", "GET"]), Value::Null);
    browser.go(&format!("http://{address}/#/keys?by=1"));
    browser.sees("400 keys measured");
    browser.sees("52 keys are left out: Your user may not do this: NOPERM");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
