//! HTTP health checks of engines: readiness for engines that do not report it, and liveness after a
//! suspicious log line.
//!
//! The check is a GET on the loopback. The pause between two checks grows from 20 ms to at most 250 ms, so
//! that a ready model is noticed soon. A port on which another user's process listens gets no request.

use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::Full;
use tokio::time::{sleep, timeout};

use super::http_client::HttpClient;
use super::port_owner::PortOwner;
use super::spawn::Readiness;

/// Time after which a build without the control channel is checked by HTTP; llama-server reports within
/// milliseconds.
const SILENT_CHANNEL: Duration = Duration::from_millis(250);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Time limit of one check; a child that accepts the connection but does not answer is checked again.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
const HEALTH: &str = "/health";

/// Result of waiting for a child's readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Announced {
    Ready,
    /// A process of this user (by number) listens on the child's port.
    Stranger(u32),
}

/// Future that waits for the readiness of a child that does not report it.
pub(super) type Announcement = Pin<Box<dyn Future<Output = Announced>>>;

pub(super) fn announcement(readiness: &Readiness, port: u16, group: u32) -> Announcement {
    match readiness.clone() {
        Readiness::Immediate => Box::pin(std::future::ready(Announced::Ready)),
        Readiness::Health { path } => Box::pin(until_ready(PortOwner::new(port, group), port, path)),
        Readiness::Control => Box::pin(async move {
            sleep(SILENT_CHANNEL).await;
            until_ready(PortOwner::new(port, group), port, HEALTH.to_owned()).await
        }),
    }
}

/// Returns once `path` of the child on `port` answers 200; repeats the check until then.
async fn until_ready(owner: PortOwner, port: u16, path: String) -> Announced {
    let mut pause = FIRST_PAUSE;
    loop {
        // Checked after the answer as well: the listener may have changed in between.
        if let Some(uid) = owner.stranger() {
            return Announced::Stranger(uid);
        }
        let answer = timeout(ANSWER_WITHIN, status_of(port, &path)).await;
        if answer == Ok(Some(StatusCode::OK)) && owner.stranger().is_none() {
            return Announced::Ready;
        }
        sleep(pause).await;
        // Growing, so that a fast engine is seen at once and a slow one is not asked a thousand times.
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

/// Returns whether a child answers a request on a fresh connection before `limit` has passed. Every HTTP
/// status is an answer: an engine that reports "busy" or "not found" runs.
pub(super) async fn answers_within(readiness: &Readiness, port: u16, limit: Duration) -> bool {
    let path = match readiness {
        Readiness::Health { path } => path,
        Readiness::Control | Readiness::Immediate => HEALTH,
    };
    let asked = async {
        while status_of(port, path).await.is_none() {
            sleep(LONGEST_PAUSE).await;
        }
    };
    timeout(limit, asked).await.is_ok()
}

async fn status_of(port: u16, path: &str) -> Option<StatusCode> {
    let slash = if path.starts_with('/') { "" } else { "/" };
    let request = Request::get(format!("{slash}{path}"))
        .body(Full::default())
        .ok()?;
    let mut client = HttpClient::new(Ipv4Addr::LOCALHOST.to_string(), port);
    client.send(request).await.ok().map(|answer| answer.status())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn only_a_200_is_ready() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = async {
            let answers: [&[u8]; 4] = [
                b"HTTP/1.1 503 Loading\r\n\r\n",
                b"garbage",
                b"",
                b"HTTP/1.1 200 OK\r\n\r\n",
            ];
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 64];
                let read = stream.read(&mut request).await.unwrap();
                assert!(request[..read].starts_with(b"GET /health HTTP/1.1\r\n"));
                stream.write_all(answer).await.unwrap();
            }
        };
        let owner = PortOwner::new(port, std::process::id());
        let (_, announced) = tokio::join!(server, until_ready(owner, port, "health".to_owned()));
        assert_eq!(announced, Announced::Ready);
    }

    #[tokio::test]
    async fn every_status_is_life_and_silence_is_not() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let limit = Duration::from_millis(300);
        assert!(!answers_within(&Readiness::Control, port, limit).await);
        let server = async {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.write_all(b"HTTP/1.1 503 Busy\r\n\r\n").await;
            }
        };
        tokio::select! {
            () = server => {}
            answers = answers_within(&Readiness::Immediate, port, LONGEST_PAUSE * 8) => assert!(answers),
        }
    }
}
