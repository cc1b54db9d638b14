//! Readiness of engines that do not report it: a path of theirs answers 200.
//!
//! A GET of its own on the loopback, twenty milliseconds apart at first and never more than a quarter second, so
//! that a ready model is not left waiting for the next whole second.

use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::spawn::Readiness;

/// llama-server reports within milliseconds; one that knows no channel is asked by HTTP after this time.
const SILENT_CHANNEL: Duration = Duration::from_millis(250);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// A child that accepts and stays silent is asked again.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Ends when a child is ready that does not say so itself.
pub(super) type Announcement = Pin<Box<dyn Future<Output = ()>>>;

pub(super) fn announcement(readiness: &Readiness, port: u16) -> Announcement {
    match readiness.clone() {
        Readiness::Immediate => Box::pin(std::future::ready(())),
        Readiness::Health { path } => Box::pin(until_ready(port, path)),
        Readiness::Control => Box::pin(async move {
            sleep(SILENT_CHANNEL).await;
            until_ready(port, "/health".to_owned()).await;
        }),
    }
}

/// Returns once `path` of the child on `port` answers 200; asks for ever otherwise.
async fn until_ready(port: u16, path: String) {
    let mut pause = FIRST_PAUSE;
    loop {
        if let Ok(Ok(true)) = timeout(ANSWER_WITHIN, answers_ok(port, &path)).await {
            return;
        }
        sleep(pause).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

async fn answers_ok(port: u16, path: &str) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let request =
        format!("GET {slash}{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    Ok(head.starts_with(b"HTTP/1.") && head.ends_with(b" 200"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

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
        tokio::join!(server, until_ready(port, "health".to_owned()));
    }
}
