//! Checks engines over HTTP: whether one is ready after its start, and alive after a suspicious log line.

use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::time::{Instant, sleep, timeout};

use super::address::EngineAddress;
use super::spec::Readiness;
use plimsoll_process::port_holder::{self, ListenerKind};
use plimsoll_process::port_owner::listens_on;

/// Time after which a build without the control channel is checked by HTTP; llama-server reports within
/// milliseconds.
const SILENT_CHANNEL: Duration = Duration::from_millis(250);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// llama-server binds before it loads. One that has not after this time does not see the folder of its socket
/// (a container).
const BINDS_WITHIN: Duration = Duration::from_secs(30);
/// Time limit of one check; a child that accepts the connection but does not answer is checked again.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Time that an engine has to live on beside a listener that may be its own, or not.
const SETTLES: Duration = Duration::from_secs(1);
const HEALTH: &str = "/health";

/// Result of waiting for a child's readiness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Announced {
    Ready,
    /// Another process listens on the child's port: this one.
    Stranger(String),
    /// The child has not made the socket that it was ordered to listen on.
    Unbound,
}

/// Future that waits for the readiness of a child that does not report it.
pub(super) type Announcement = Pin<Box<dyn Future<Output = Announced>>>;

pub(super) fn announcement(readiness: &Readiness, address: &EngineAddress, group: u32) -> Announcement {
    let address = address.clone();
    match readiness.clone() {
        Readiness::Immediate => Box::pin(std::future::ready(Announced::Ready)),
        Readiness::Health { path } => Box::pin(until_ready(address, group, path, BINDS_WITHIN)),
        Readiness::Control => Box::pin(async move {
            sleep(SILENT_CHANNEL).await;
            until_ready(address, group, HEALTH.to_owned(), BINDS_WITHIN).await
        }),
    }
}

/// Returns once `path` of the child at `address` answers 200; asks for ever otherwise.
async fn until_ready(address: EngineAddress, group: u32, path: String, binds_within: Duration) -> Announced {
    let mut pause = FIRST_PAUSE;
    let begun = Instant::now();
    let mut unclear = None;
    loop {
        // Checked after the answer as well: the listener may have changed in between.
        if let Some(uid) = address.stranger(group) {
            return Announced::Stranger(format!("a process of user {uid}"));
        }
        if !address.is_bound() && begun.elapsed() >= binds_within {
            return Announced::Unbound;
        }
        let answer = timeout(ANSWER_WITHIN, status_of(&address, &path, None)).await;
        if answer == Ok(Some(StatusCode::OK)) && address.stranger(group).is_none() {
            match listener_kind(&address, group).await {
                ListenerKind::Own => return Announced::Ready,
                ListenerKind::Foreign(holder) => return Announced::Stranger(holder.to_string()),
                ListenerKind::Unclear(socket) => {
                    let since = match unclear {
                        Some((since, known)) if known == socket => since,
                        _ => Instant::now(),
                    };
                    if since.elapsed() >= SETTLES {
                        return Announced::Ready;
                    }
                    unclear = Some((since, socket));
                }
            }
        }
        sleep(pause).await;
        // Growing, so that a fast engine is seen at once and a slow one is not asked a thousand times.
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

async fn listener_kind(address: &EngineAddress, group: u32) -> ListenerKind {
    let EngineAddress::Port(port) = *address else { return ListenerKind::Own };
    // The rule, for which no thread is needed.
    let leader = i32::try_from(group).unwrap_or(i32::MAX);
    if listens_on(leader, Ipv4Addr::LOCALHOST.into(), port) {
        return ListenerKind::Own;
    }
    let looked = tokio::task::spawn_blocking(move || port_holder::kind(port, group)).await;
    looked.unwrap_or(ListenerKind::Own)
}

/// Returns whether a child answers a request on a fresh connection before `limit` has passed. Every HTTP
/// status is an answer: an engine that reports "busy" or "not found" runs.
pub(super) async fn answers_within(readiness: &Readiness, address: &EngineAddress, limit: Duration) -> bool {
    let path = match readiness {
        Readiness::Health { path } => path,
        Readiness::Control | Readiness::Immediate => HEALTH,
    };
    let requested = async {
        while status_of(address, path, None).await.is_none() {
            sleep(LONGEST_PAUSE).await;
        }
    };
    timeout(limit, requested).await.is_ok()
}

async fn status_of(address: &EngineAddress, path: &str, key: Option<&str>) -> Option<StatusCode> {
    answer_of(address, path, key).await.map(|answer| answer.status())
}

/// Answer to a request on a fresh connection.
pub(super) async fn answer_of(
    address: &EngineAddress,
    path: &str,
    key: Option<&str>,
) -> Option<Response<Incoming>> {
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut request = Request::get(format!("{slash}{path}"));
    if let Some(key) = key {
        request = request.header(AUTHORIZATION, format!("Bearer {key}"));
    }
    let request = request.body(Full::default()).ok()?;
    let mut client = address.clone().client();
    client.send(request).await.ok()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn only_a_200_is_ready() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = async {
            let answers: [&[u8]; 4] =
                [b"HTTP/1.1 503 Loading\r\n\r\n", b"garbage", b"", b"HTTP/1.1 200 OK\r\n\r\n"];
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 64];
                let read = stream.read(&mut request).await.unwrap();
                assert!(request[..read].starts_with(b"GET /health HTTP/1.1\r\n"));
                stream.write_all(answer).await.unwrap();
            }
        };
        let ready = until_ready(EngineAddress::Port(port), std::process::id(), "health".to_owned(), LIMIT);
        let (_, announced) = tokio::join!(server, ready);
        assert_eq!(announced, Announced::Ready);
    }

    #[tokio::test]
    async fn every_status_is_life_and_silence_is_not() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = EngineAddress::Port(port);
        let limit = Duration::from_millis(300);
        assert!(!answers_within(&Readiness::Control, &address, limit).await);
        let server = async {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.write_all(b"HTTP/1.1 503 Busy\r\n\r\n").await;
            }
        };
        tokio::select! {
            () = server => {}
            answers = answers_within(&Readiness::Immediate, &address, LONGEST_PAUSE * 8) => assert!(answers),
        }
    }

    #[tokio::test]
    async fn an_engine_that_never_makes_its_socket_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let address = EngineAddress::in_folder(folder.path(), 0).unwrap();
        let announced = until_ready(address, 1, "/".to_owned(), Duration::from_millis(50)).await;
        assert_eq!(announced, Announced::Unbound);
    }
}
