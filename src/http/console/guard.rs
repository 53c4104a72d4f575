//! What goes for every request: who may have made it, and what the browser is told about the response.
//!
//! A page of another site can make the browser send requests here. Four things keep it from reaching anything:
//!
//! - **`Host`** must be an address, `localhost` or a name of `console-hosts`. Else a foreign name whose address its
//!   owner changes to that of this machine would make the foreign page one of the console's own (DNS rebinding).
//! - **`Origin` and `Sec-Fetch-Site`**, which a page can't forge, must say that a request to `/api` comes from here.
//! - **The cookie** of the session is `SameSite=Strict`, so the browser sends it only for pages from here, and
//!   `HttpOnly`, so no script reads it.
//! - **A token** must come with each `POST` of a session, in a header. Only a page that may read responses has it.
//!
//! The policy for content lets the page run and load only what comes from here, so a key or a note that looks like HTML
//! stays text even if the page has a mistake.

use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, ORIGIN, REFERRER_POLICY, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use std::net::{IpAddr, SocketAddr};

use super::answer::refused;

/// The header that carries the token of a session.
pub(super) const TOKEN: HeaderName = HeaderName::from_static("x-tidegate-token");

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

const POLICY: &str =
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'";

/// Headers of every response.
const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// `Host` is missing, or a name that is not known.
    Host,
    /// Another site made the request.
    CrossSite,
    /// The body is not what is expected.
    Body,
    /// The body is too long.
    TooLarge,
    /// Nobody is signed in.
    SignedOut,
    /// The token is missing or wrong.
    Token,
    /// User and password do not fit.
    Password,
    /// Too many sign-ins have failed; seconds to wait.
    Slow(u64),
    /// Too many requests at once.
    Crowded,
    /// There is nothing at this path.
    NotHere,
}

impl Refused {
    fn status(self) -> StatusCode {
        match self {
            Refused::Host => StatusCode::MISDIRECTED_REQUEST,
            Refused::CrossSite | Refused::Token => StatusCode::FORBIDDEN,
            Refused::Body => StatusCode::BAD_REQUEST,
            Refused::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Refused::SignedOut | Refused::Password => StatusCode::UNAUTHORIZED,
            Refused::Slow(_) | Refused::Crowded => StatusCode::TOO_MANY_REQUESTS,
            Refused::NotHere => StatusCode::NOT_FOUND,
        }
    }

    /// A word for the page.
    fn code(self) -> &'static str {
        match self {
            Refused::Host => "host",
            Refused::CrossSite => "cross-site",
            Refused::Body => "body",
            Refused::TooLarge => "too-large",
            Refused::SignedOut => "signed-out",
            Refused::Token => "token",
            Refused::Password => "password",
            Refused::Slow(_) => "slow",
            Refused::Crowded => "crowded",
            Refused::NotHere => "not-here",
        }
    }

    fn text(self) -> String {
        match self {
            Refused::Host => "the console answers to addresses, to localhost, and to the names of console-hosts".into(),
            Refused::CrossSite => "the request comes from another site".into(),
            Refused::Body => "the request can't be read".into(),
            Refused::TooLarge => "the request is too long".into(),
            Refused::SignedOut => "nobody is signed in".into(),
            Refused::Token => "the token of the session is missing or wrong".into(),
            Refused::Password => "no such user, or another password".into(),
            Refused::Slow(seconds) => format!("too many sign-ins have failed: try again in {seconds} s"),
            Refused::Crowded => "too many requests at once".into(),
            Refused::NotHere => "there is nothing here".into(),
        }
    }
}

/// The response that refuses a request.
pub(super) fn refusal(why: Refused) -> Response {
    let mut response = refused(why.status(), why.code(), &why.text());
    if let Refused::Slow(seconds) = why {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// See the file's header.
pub(super) struct Guard {
    /// Names besides addresses and `localhost`, in lower case.
    hosts: Vec<String>,
}

impl Guard {
    pub(super) fn new(hosts: &[String]) -> Guard {
        Guard { hosts: hosts.iter().map(|host| host.to_ascii_lowercase()).collect() }
    }

    /// Checks who may have made a request.
    pub(super) fn check(&self, request: &Request) -> Result<(), Refused> {
        let headers = request.headers();
        let host = only(headers, &HOST).ok_or(Refused::Host)?;
        let asked = request.uri().authority().map(|authority| authority.as_str());
        if !self.knows(host) || !asked.is_none_or(|asked| self.knows(asked)) {
            return Err(Refused::Host);
        }
        if !is_api(request) {
            return Ok(());
        }
        let is_from_here = |origin: &str| {
            origin.split_once("://").is_some_and(|(scheme, authority)| {
                ["http", "https"].contains(&scheme) && authority.eq_ignore_ascii_case(host)
            })
        };
        let has_foreign_origin = headers.contains_key(ORIGIN) && !only(headers, &ORIGIN).is_some_and(is_from_here);
        let site = headers.contains_key(SEC_FETCH_SITE).then(|| only(headers, &SEC_FETCH_SITE).unwrap_or_default());
        if has_foreign_origin || !matches!(site, None | Some("same-origin" | "none")) {
            return Err(Refused::CrossSite);
        }
        // A form of another site can't send this type without asking first.
        let is_json = only(headers, &CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/json"));
        if request.method() == Method::POST && !is_json {
            return Err(Refused::CrossSite);
        }
        Ok(())
    }

    /// Whether the console answers to a `Host`: a name or address, with a port or without.
    fn knows(&self, host: &str) -> bool {
        if host.parse::<IpAddr>().is_ok() || host.parse::<SocketAddr>().is_ok() {
            return true;
        }
        if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return address.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6());
        }
        let (name, port) = host.rsplit_once(':').unwrap_or((host, "0"));
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        port.parse::<u16>().is_ok() && (name == "localhost" || self.hosts.contains(&name))
    }
}

/// Whether a request asks for something that belongs to a session.
pub(super) fn is_api(request: &Request) -> bool {
    request.uri().path().starts_with("/api/")
}

/// Whether the browser has come by HTTPS, as it says itself. Then a proxy stands in front.
pub(super) fn is_secure(headers: &HeaderMap) -> bool {
    only(headers, &ORIGIN).is_some_and(|origin| origin.starts_with("https://"))
}

/// The value of a header that there is once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())?.to_str().ok()
}

/// Sets the headers that every response has.
pub(super) fn set_headers(is_api: bool, response: &mut Response) {
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if is_api || !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn checked(path: &str, method: Method, headers: &[(&str, &str)]) -> Result<(), Refused> {
        let mut request = Request::builder().uri(path).method(method);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Guard::new(&["Console.example".to_owned()]).check(&request.body(Body::empty()).expect("a request"))
    }

    #[test]
    fn only_known_names_are_answered_to() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:8379",
            "10.1.2.3:80",
            "[::1]",
            "[::1]:8379",
            "localhost",
            "LOCALHOST:8379",
            "localhost.:8379",
            "console.example",
            "console.EXAMPLE:443",
        ] {
            assert_eq!(checked("/", Method::GET, &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8379",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "x.console.example",
            "console.example:x",
            "[evil]",
            "[127.0.0.1]",
            "",
            "127.0.0.1:99999",
        ] {
            assert_eq!(checked("/", Method::GET, &[("host", host)]), Err(Refused::Host), "{host}");
        }
        assert_eq!(checked("/", Method::GET, &[]), Err(Refused::Host));
        assert_eq!(checked("/", Method::GET, &[("host", "localhost"), ("host", "localhost")]), Err(Refused::Host));
        assert_eq!(checked("http://evil.example/", Method::GET, &[("host", "localhost")]), Err(Refused::Host));
    }

    #[test]
    fn requests_of_other_sites_are_refused() {
        let here = ("host", "127.0.0.1:8379");
        let json = ("content-type", "application/json");
        let post = |headers: &[(&str, &str)]| checked("/api/command", Method::POST, headers);
        assert_eq!(post(&[here, json]), Ok(()));
        assert_eq!(post(&[here, json, ("origin", "http://127.0.0.1:8379"), ("sec-fetch-site", "same-origin")]), Ok(()));
        assert_eq!(post(&[here, json, ("origin", "https://127.0.0.1:8379")]), Ok(()), "behind a proxy");
        for foreign in [
            &[here][..],
            &[here, ("content-type", "text/plain")],
            &[here, json, ("origin", "http://127.0.0.1:8380")],
            &[here, json, ("origin", "http://evil.example")],
            &[here, json, ("origin", "null")],
            &[here, json, ("sec-fetch-site", "cross-site")],
            &[here, json, ("sec-fetch-site", "same-site")],
        ] {
            assert_eq!(post(foreign), Err(Refused::CrossSite), "{foreign:?}");
        }
        assert_eq!(
            checked("/api/stream", Method::GET, &[here, ("sec-fetch-site", "cross-site")]),
            Err(Refused::CrossSite)
        );
        assert_eq!(checked("/", Method::GET, &[here, ("sec-fetch-site", "cross-site")]), Ok(()), "a link to the page");
    }
}
