//! A browser, driven by chromedriver in the protocol WebDriver (W3C): JSON over HTTP, of which these tests need little.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{free_port, until};

/// How long an element may take to appear.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running chromedriver with one window of a headless Chromium. Both end when the value is dropped.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    clicks: Cell<usize>,
}

impl Browser {
    /// Opens a window of this size in pixels.
    pub(crate) fn open(width: u32, height: u32) -> Browser {
        let port = free_port();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts");
        let mut browser = Browser { driver, port, session: String::new(), clicks: Cell::new(0) };
        until(|| TcpStream::connect(("127.0.0.1", port)).is_ok(), "chromedriver listens");
        let size = format!("--window-size={width},{height}");
        // Without --no-sandbox, Chromium does not run as root. /dev/shm of a container is too small for its pictures.
        let args =
            ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars", &size];
        let wanted = json!({
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": args },
        });
        let begun = browser.ask("POST", "/session", Some(json!({ "capabilities": { "alwaysMatch": wanted } })));
        browser.session = begun.expect("a window")["sessionId"].as_str().expect("its name").to_owned();
        // A headless window may be smaller than was asked for; this sets its inside.
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        browser.developer("Emulation.setDeviceMetricsOverride", metrics);
        browser
    }

    /// Sends a command of Chromium's developer tools.
    pub(crate) fn developer(&self, command: &str, parameters: Value) -> Value {
        self.call("POST", "/goog/cdp/execute", Some(json!({ "cmd": command, "params": parameters })))
    }

    pub(crate) fn go(&self, address: &str) {
        self.call("POST", "/url", Some(json!({ "url": address })));
    }

    /// Runs a script in the page, and returns what it returns.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.call("POST", "/execute/sync", Some(json!({ "script": script, "args": [] })))
    }

    /// A picture of the page, as PNG in base64.
    pub(crate) fn picture(&self) -> String {
        self.call("GET", "/screenshot", None).as_str().unwrap_or_default().to_owned()
    }

    /// A picture of one element, as PNG in base64.
    pub(crate) fn picture_of(&self, path: &str) -> String {
        let element = self.find(path);
        let picture = self.call("GET", &format!("/element/{element}/screenshot"), None);
        picture.as_str().unwrap_or_default().to_owned()
    }

    /// Waits for an element, named by XPath.
    pub(crate) fn find(&self, path: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.try_call("POST", "/element", Some(json!({ "using": "xpath", "value": path })));
            match found.as_ref().map(|element| element.as_object().and_then(|names| names.values().next().cloned())) {
                Ok(Some(Value::String(id))) => return id,
                other => assert!(Instant::now() < deadline, "no {path}: {other:?}\n{}", self.text()),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn click(&self, path: &str) {
        self.clicks.set(self.clicks.get() + 1);
        let deadline = Instant::now() + PATIENCE;
        loop {
            // The page may draw the element anew between the two.
            let element = self.find(path);
            match self.try_call("POST", &format!("/element/{element}/click"), Some(json!({}))) {
                Ok(_) => return,
                Err(error) => assert!(Instant::now() < deadline, "{path}: {error}"),
            }
        }
    }

    /// The clicks so far.
    pub(crate) fn clicks(&self) -> usize {
        self.clicks.get()
    }

    /// Types into a field. `\n` is the return key.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let element = self.find(path);
        self.call("POST", &format!("/element/{element}/value"), Some(json!({ "text": text })));
    }

    /// The text that the page shows.
    pub(crate) fn text(&self) -> String {
        self.run("return document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page shows a text.
    pub(crate) fn sees(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.text().contains(text) {
            assert!(
                Instant::now() < deadline,
                "{text:?} is not shown:\n{}\n{}",
                self.text(),
                self.complaints().join("\n")
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What the page's console has said since the last call: errors of programs, and what the policy for content
    /// forbade. A response that refuses is listed by the browser, too; tests expect some, so these are left out.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.call("POST", "/se/log", Some(json!({ "type": "browser" })));
        let lines = log.as_array().into_iter().flatten().filter(|line| line["level"] == "SEVERE");
        let texts = lines.map(|line| line["message"].as_str().unwrap_or_default().to_owned());
        texts.filter(|text| !text.contains("Failed to load resource")).collect()
    }

    fn call(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        self.try_call(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    fn try_call(&self, method: &str, path: &str, body: Option<Value>) -> Result<Value, String> {
        self.ask(method, &format!("/session/{}{path}", self.session), body)
    }

    fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Result<Value, String> {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let (port, length) = (self.port, body.len());
        let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(2 * PATIENCE)).expect("a timeout");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).map_err(|error| error.to_string())?;
        let mut reader = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            line.clear();
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer).map_err(|error| error.to_string())?;
        let said: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        match said["value"].get("error") {
            Some(error) => Err(format!("{error}: {}", said["value"]["message"])),
            None => Ok(said["value"].clone()),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Chromium ends with its session, and chromedriver when it is killed.
        let _ = self.try_call("DELETE", "", None);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
