//! The thread of a site: sockets, connections, and what goes for every response.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::crowd::{Answering, Crowd, Place};
use super::limits::{PIECE_BYTES, RESPONSE_MAX, RESPONSE_PATIENCE};

/// How long to wait when the system has no more descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// What is served at a port.
pub(super) struct Site {
    pub(super) router: Router,
    pub(super) crowd: Arc<Crowd>,
    /// Bytes of the head of a request.
    pub(super) head_max_bytes: usize,
    /// Whether a connection may carry several requests.
    pub(super) keeps_alive: bool,
    /// Threads for what takes a while.
    pub(super) threads_aside: usize,
}

/// The peer, which requests carry.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) address: SocketAddr,
    pub(super) place: Place,
}

/// Serves a site at its sockets on a thread of this name, and what takes a while on others of the same name, until the
/// process ends.
pub(super) fn serve(name: &str, listeners: Vec<StdListener>, site: Site) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name(name)
        .max_blocking_threads(site.threads_aside)
        .build()?;
    let serve = move || {
        runtime.block_on(async {
            let site = Arc::new(site);
            for listener in listeners {
                match TcpListener::from_std(listener) {
                    Ok(listener) => drop(tokio::spawn(accept_all(listener, Arc::clone(&site)))),
                    Err(error) => tracing::error!(%error, "a port of HTTP can't be served"),
                }
            }
            std::future::pending::<()>().await;
        });
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(serve)?;
    Ok(())
}

async fn accept_all(listener: TcpListener, site: Arc<Site>) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                if let Some(place) = site.crowd.enter() {
                    tokio::spawn(serve_connection(stream, address, Arc::clone(&site), place));
                }
            }
            // The process may be out of descriptors; a moment later some may be free.
            Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
        }
    }
}

async fn serve_connection(stream: TcpStream, address: SocketAddr, site: Arc<Site>, place: Place) {
    // Small parts of a stream of state must not wait for each other. A socket that was reset takes no options.
    let _ = stream.set_nodelay(true);
    let router = TowerToHyperService::new(site.router.clone());
    let seat = place.clone();
    let answer = service_fn(move |request: Request<Incoming>| {
        let answering = seat.begins();
        let mut request = request.map(|body| Body::new(Arriving::new(body, seat.clone())));
        request.extensions_mut().insert(Caller { address, place: seat.clone() });
        let response = router.call(request);
        async move {
            let response: Response = response.await?;
            Ok::<_, Infallible>(response.map(|body| Tracked::new(body, answering)))
        }
    });
    let connection = http1::Builder::new()
        .keep_alive(site.keeps_alive)
        // Some who send one request close their side at once. A stream would not notice that its reader has left.
        .half_close(!site.keeps_alive)
        .max_buf_size(site.head_max_bytes)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(stream), answer);
    tokio::select! {
        // A broken connection is reported by its peer.
        _ = connection => {}
        () = place.must_leave() => {}
    }
}

/// The body of a request.
struct Arriving {
    body: Incoming,
    place: Place,
}

impl Arriving {
    fn new(body: Incoming, place: Place) -> Arriving {
        let arriving = Arriving { body, place };
        arriving.notice_end();
        arriving
    }

    fn notice_end(&self) {
        if self.body.is_end_stream() {
            self.place.has_arrived();
        }
    }
}

impl hyper::body::Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match frame {
            // A body in chunks ends without having said so.
            None => self.place.has_arrived(),
            Some(_) => self.notice_end(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a response, in small pieces. The connection counts as being answered until the body is dropped, which is
/// when the last piece has been handed over.
struct Tracked {
    body: Body,
    /// The part of a frame that is not handed over.
    rest: Bytes,
    answering: Answering,
    /// When it must have been read; `None` for a stream, which goes on.
    deadline: Option<Instant>,
}

impl Tracked {
    fn new(body: Body, answering: Answering) -> Tracked {
        let deadline = body.size_hint().exact().map(|_| Instant::now() + RESPONSE_MAX);
        Tracked { body, rest: Bytes::new(), answering, deadline }
    }
}

impl hyper::body::Body for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // hyper asks for more when the peer has read enough of what it was sent.
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        self.answering.may_take(left.unwrap_or(RESPONSE_PATIENCE).min(RESPONSE_PATIENCE));
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.rest = data,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let len = self.rest.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(len)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // hyper asks once, at the beginning.
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::super::crowd::Most;
    use super::*;

    /// A body that goes on.
    struct Endless;

    impl hyper::body::Body for Endless {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn whatever_ends_must_be_read_in_time() {
        let place = Crowd::new(Most { all: 1, silent: 1, strangers: 1 }).enter().expect("a place");
        let deadline = |body: Body| Tracked::new(body, place.begins()).deadline;
        assert!(deadline(Body::from("text")).is_some_and(|deadline| deadline <= Instant::now() + RESPONSE_MAX));
        assert_eq!(deadline(Body::new(Endless)), None);
    }
}
