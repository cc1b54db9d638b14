//! HTTP requests to the etcd members of a store, with deadlines and bounded response sizes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use plimsoll_http::{HttpClient, HttpClientError, collect_body};
use serde_json::Value;
use tokio::time::timeout;

use super::message::Answer;

const CONNECT: Duration = Duration::from_secs(1);
/// Time for an answer: etcd itself gives up after 7 s without a leader.
const ANSWER: Duration = Duration::from_secs(2);
/// Longest answer: a page of 500 records of the longest kind would be refused.
const LONGEST: usize = 32 << 20;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{member} cannot be reached: {error}")]
    Connect { member: String, error: std::io::Error },
    #[error("{member} does not answer: {why}")]
    Silent { member: String, why: String },
    #[error("{member} refuses with status {status}: {message}")]
    Refused { member: String, status: StatusCode, message: String },
    #[error("the answer of {member} is not that of etcd: {why}")]
    Unreadable { member: String, why: String },
    #[error("the history was compacted up to revision {revision}")]
    Compacted { revision: u64 },
}

#[derive(Debug)]
pub(crate) struct Gateway {
    members: Vec<String>,
    /// The member that answered last.
    first: AtomicUsize,
}

/// The connection of an answer; dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) member: String,
    _client: HttpClient,
}

impl Gateway {
    pub(crate) fn new(members: Vec<String>) -> Self {
        Self { members, first: AtomicUsize::new(0) }
    }

    pub(crate) fn beginning_at(self, member: usize) -> Self {
        Self { first: AtomicUsize::new(member), ..self }
    }

    /// Asks members in turn until one answers.
    pub(crate) async fn ask(&self, path: &str, body: &Value) -> Result<Answer, StoreError> {
        let mut last = None;
        for _ in 0..self.members.len() {
            match self.ask_next(path, body).await {
                Ok(answer) => return Ok(answer),
                Err(error) => last = Some(error),
            }
            self.first.fetch_add(1, Ordering::Relaxed);
        }
        Err(last.unwrap_or_else(|| silent("the store", "it has no member")))
    }

    /// Asks one member; another one only if the first cannot be reached.
    pub(crate) async fn ask_once(&self, path: &str, body: &Value) -> Result<Answer, StoreError> {
        let mut last = None;
        for _ in 0..self.members.len() {
            match self.ask_next(path, body).await {
                Err(error @ StoreError::Connect { .. }) => last = Some(error),
                answer => return answer,
            }
            self.first.fetch_add(1, Ordering::Relaxed);
        }
        Err(last.unwrap_or_else(|| silent("the store", "it has no member")))
    }

    async fn ask_next(&self, path: &str, body: &Value) -> Result<Answer, StoreError> {
        let (stream, answer) = self.open_next(path, body).await?;
        let member = &stream.member;
        let whole = timeout(ANSWER, collect_body(answer, LONGEST)).await;
        let whole = whole.map_err(|_| silent(member, "the answer does not end"))?;
        let whole = whole.map_err(|error| failed(member, error))?;
        let unreadable = |error: serde_json::Error| StoreError::Unreadable {
            member: member.clone(),
            why: error.to_string(),
        };
        serde_json::from_slice(&whole).map_err(unreadable)
    }

    /// Opens a stream of answers at the first member that begins one.
    pub(crate) async fn open(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<(Stream, Response<Incoming>), StoreError> {
        let mut last = None;
        for _ in 0..self.members.len() {
            match self.open_next(path, body).await {
                Ok(opened) => return Ok(opened),
                Err(error) => last = Some(error),
            }
            self.first.fetch_add(1, Ordering::Relaxed);
        }
        Err(last.unwrap_or_else(|| silent("the store", "it has no member")))
    }

    async fn open_next(&self, path: &str, body: &Value) -> Result<(Stream, Response<Incoming>), StoreError> {
        let turn = self.first.load(Ordering::Relaxed) % self.members.len().max(1);
        let member = self.members.get(turn).cloned().unwrap_or_default();
        let request = Request::post(path)
            .header(CONTENT_TYPE, "application/json")
            // Without it a member that is cut off from the others lets a watch wait for ever.
            .header("Grpc-Metadata-hasleader", "true")
            .body(Full::new(Bytes::from(body.to_string())));
        let request = request.map_err(|error| silent(&member, &error.to_string()))?;
        let mut client = HttpClient::at(&member).connect_within(CONNECT);
        let answer = timeout(CONNECT + ANSWER, client.send(request)).await;
        let answer = answer.map_err(|_| silent(&member, "no answer in time"))?;
        let answer = answer.map_err(|error| failed(&member, error))?;
        let status = answer.status();
        if status == StatusCode::OK {
            return Ok((Stream { member, _client: client }, answer));
        }
        let message = timeout(ANSWER, collect_body(answer, 4096)).await.ok();
        let message = message.and_then(Result::ok).unwrap_or_default();
        let message = String::from_utf8_lossy(&message).trim().to_owned();
        Err(StoreError::Refused { member, status, message })
    }
}

fn failed(member: &str, error: HttpClientError) -> StoreError {
    match error {
        HttpClientError::Connect { error, .. } => StoreError::Connect { member: member.to_owned(), error },
        error @ HttpClientError::Body { .. } => silent(member, &error.to_string()),
        HttpClientError::Exchange(error) => silent(member, &error.to_string()),
    }
}

fn silent(member: &str, why: &str) -> StoreError {
    StoreError::Silent { member: member.to_owned(), why: why.to_owned() }
}
