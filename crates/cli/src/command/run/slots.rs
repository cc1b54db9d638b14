//! Asks the llama-server that `plimsoll run` starts how many tokens each of its conversations holds
//! (`/slots`).

use http::{Request, StatusCode};
use http_body_util::Full;
use plimsoll_engine::EngineAddress;
use plimsoll_flags::Options;
use plimsoll_http::{HttpClient, collect_body};
use plimsoll_probe::guard::{LONGEST_SLOTS, SLOTS_WITHIN};
use tokio::time::timeout;

/// The port that llama-server takes without one.
const PORT: u16 = 8080;

/// Client of a llama-server for its slots.
#[derive(Debug)]
pub(super) struct SlotsClient(HttpClient);

impl SlotsClient {
    /// For a server that is started with these flags; `None` if they name no port.
    pub(super) fn new(flags: &Options) -> Option<Self> {
        let port = flags.text("--port").map_or(Some(PORT), |port| port.parse().ok())?;
        Some(Self(EngineAddress::Port(port).client()))
    }

    /// The body of the answer of `GET /slots`; `None` without one.
    pub(super) async fn slots(&mut self) -> Option<Vec<u8>> {
        let answer = timeout(SLOTS_WITHIN, self.ask()).await.ok().flatten();
        if answer.is_none() {
            self.0.disconnect();
        }
        answer
    }

    async fn ask(&mut self) -> Option<Vec<u8>> {
        let request = Request::get("/slots").body(Full::default()).ok()?;
        let answer = self.0.send(request).await.ok()?;
        (answer.status() == StatusCode::OK).then_some(())?;
        Some(collect_body(answer, LONGEST_SLOTS).await.ok()?.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_port_of_the_flags_is_asked_for_slots() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let words = ["--port".to_owned(), listener.local_addr().unwrap().port().to_string()];
        let mut client = SlotsClient::new(&Options::from_argv(&words).unwrap()).unwrap();
        let served = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).await.unwrap();
            assert!(request[..length].starts_with(b"GET /slots "));
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]").await.unwrap();
            stream
        };
        let (_stream, slots) = tokio::join!(served, client.slots());
        assert_eq!(slots.as_deref(), Some(&b"[]"[..]));
    }
}
