//! Sends prompts to an engine that runs without a GPU, to make it allocate its run-time pool (`plan --exact
//! --prompt`).
//!
//! The engine's own backend requests the pool's memory, so no code of ggml is mirrored. Only operations that
//! ggml places on the host compute anything.

use std::io::{self, Read};
use std::thread;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use http_body_util::Full;
use plimsoll_base::Card;
use plimsoll_flags::Options;
use plimsoll_http::{HttpClient, HttpClientError, collect_body};
use plimsoll_planner::exact::Transcript;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::files::Form;
use super::system::Listening;
use super::{ExactError, Oracle};

/// Time limit of a prompt: one of a million tokens takes twenty seconds.
const LIMIT: Duration = Duration::from_secs(120);
/// Pause between two questions of whether the server is ready.
const PAUSE: Duration = Duration::from_millis(5);
/// Size limit of an answer: it holds one token, and the settings of the slot.
const LONGEST: usize = 1 << 20;

/// A prompt, and the engine that computes it.
#[derive(Clone, Debug)]
pub(super) struct Prompt {
    pub(super) tokens: u32,
    pub(super) listening: Listening,
}

/// Failure of a prompt.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    #[error("the engine ended before it had computed the prompt")]
    Ended,
    #[error("the engine did not answer within {} s", LIMIT.as_secs())]
    Late,
    #[error("the engine refuses with status {status}: {message}")]
    Refused { status: StatusCode, message: String },
    #[error(transparent)]
    Exchange(#[from] HttpClientError),
    #[error("the request to the engine cannot be made: {0}")]
    Request(#[from] http::Error),
    #[error(transparent)]
    Runtime(#[from] io::Error),
}

impl Oracle {
    /// The engine's answer to the user's own flags after a prompt of so many tokens.
    pub fn grown(&self, requested: &Options, cards: &[Card], tokens: u32) -> Result<Transcript, ExactError> {
        let mut question = self.question(requested, cards, Form::Whole)?;
        question.key.push_str(&format!("\nprompt {tokens}"));
        question.prompt = Some(tokens);
        self.answer_to(question)
    }
}

impl Prompt {
    /// Sends the prompt once the server is ready. A full pipe would stop the engine, so its log is read on.
    pub(super) fn run(&self, mut log: impl Read + Send + 'static) -> Result<(), PromptError> {
        let (gone, ended) = oneshot::channel();
        thread::spawn(move || {
            let _ = io::copy(&mut log, &mut io::sink());
            // No receiver is left where the prompt was answered before the engine was stopped.
            let _ = gone.send(());
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            tokio::select! {
                answered = timeout(LIMIT, self.exchange()) => answered.unwrap_or(Err(PromptError::Late)),
                _ = ended => Err(PromptError::Ended),
            }
        })
    }

    async fn exchange(&self) -> Result<(), PromptError> {
        let mut client = self.listening.client();
        // The place is bound before the model is loaded, and may not be there yet.
        let ready = |answer| matches!(answer, Ok((StatusCode::OK, _)));
        while !ready(send(&mut client, Request::get("/health").body(Full::default())?).await) {
            sleep(PAUSE).await;
        }
        // Two tokens: the first is of the prompt's own pass, the second has a pass of one token at that
        // depth.
        let tokens = usize::try_from(self.tokens).unwrap_or(usize::MAX);
        let more = ",0".repeat(tokens.saturating_sub(1));
        let body =
            format!("{{\"prompt\":[0{more}],\"n_predict\":2,\"ignore_eos\":true,\"cache_prompt\":false}}");
        let request = Request::post("/completion").header(CONTENT_TYPE, "application/json");
        match send(&mut client, request.body(Full::from(body))?).await? {
            (StatusCode::OK, _) => Ok(()),
            (status, answer) => Err(PromptError::Refused { status, message: message(&answer) }),
        }
    }
}

async fn send(
    client: &mut HttpClient,
    request: Request<Full<bytes::Bytes>>,
) -> Result<(StatusCode, bytes::Bytes), PromptError> {
    let answer = client.send(request).await?;
    Ok((answer.status(), collect_body(answer, LONGEST).await?))
}

/// The engine's own words for an error.
fn message(answer: &[u8]) -> String {
    /// Longer messages quote the prompt.
    const LONGEST: usize = 300;
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let message = answer["error"]["message"].as_str().unwrap_or("the server gave no reason");
    message.chars().filter(|character| !character.is_control()).take(LONGEST).collect()
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A server that gives these answers, each on a connection of its own, and its client's result.
    fn answered(answers: &[&str]) -> Result<(), PromptError> {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("s.report");
        let listener = UnixListener::bind(report.with_extension("sock")).unwrap();
        let listening = Listening::beside(&report).unwrap();
        let (log, _kept_open) = io::pipe().unwrap();
        thread::scope(|scope| {
            let client = scope.spawn(|| Prompt { tokens: 3, listening }.run(log));
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4096];
                let read = stream.read(&mut request).unwrap();
                let request = String::from_utf8_lossy(&request[..read]).into_owned();
                assert!(
                    request.starts_with("GET /health") || request.contains("\"prompt\":[0,0,0]"),
                    "{request}"
                );
                stream.write_all(answer.as_bytes()).unwrap();
            }
            client.join().unwrap()
        })
    }

    fn answer(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    #[test]
    fn a_prompt_is_sent_once_the_server_is_ready() {
        let (loading, ok) = (answer("503 Loading", "{}"), answer("200 OK", "{}"));
        assert!(answered(&[&loading, "garbage", &ok, &ok]).is_ok());
    }

    #[test]
    fn a_refusal_quotes_the_engine_without_its_control_characters() {
        let ok = answer("200 OK", "{}");
        let long = format!("{{\"error\":{{\"message\":\"too\\u001b[2J long {}\"}}}}", "x".repeat(10_000));
        let refused = answered(&[&ok, &answer("400 Bad Request", &long)]).unwrap_err().to_string();
        assert!(
            refused.starts_with("the engine refuses with status 400 Bad Request: too[2J long x"),
            "{refused}"
        );
        assert!(refused.len() < 400, "{}", refused.len());
        for body in ["", "[1]", "{\"error\":7}", "\u{fffd}"] {
            let refused = answered(&[&ok, &answer("500 Oh", body)]).unwrap_err().to_string();
            assert_eq!(
                refused,
                "the engine refuses with status 500 Internal Server Error: the server gave no reason"
            );
        }
    }

    #[test]
    fn an_answer_that_breaks_off_or_has_no_end_is_an_error() {
        let ok = answer("200 OK", "{}");
        assert!(matches!(answered(&[&ok, "HTTP/1.1 2"]), Err(PromptError::Exchange(_))));
        let endless = answer("200 OK", &"x".repeat(LONGEST + 1));
        assert!(matches!(answered(&[&ok, &endless]), Err(PromptError::Exchange(_))));
    }

    #[test]
    fn an_engine_that_ends_is_noticed_at_once() {
        let (log, written) = io::pipe().unwrap();
        drop(written);
        let prompt = Prompt { tokens: 1, listening: Listening::of_any() };
        assert!(matches!(prompt.run(log), Err(PromptError::Ended)));
    }
}
