//! Sends HTTP requests to the etcd members of the fleet's store, with deadlines and bounded response sizes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use plimsoll_http::{HttpClient, HttpClientError, collect_body};
use serde_json::Value;
use tokio::time::timeout;

use super::StoreAddress;
use super::access::{AccessError, StoreAccess};
use super::connection::{StoreTls, TlsMember, tls_failure};
use super::message::Answer;
use super::user::{self, StoreUser, Token};

const CONNECT: Duration = Duration::from_secs(1);
/// Time for an answer: etcd itself gives up after 7 s without a leader.
const ANSWER: Duration = Duration::from_secs(2);
/// Longest answer: a page of 500 records of the longest kind would be refused.
const LONGEST: usize = 32 << 20;
const LONGEST_TOKEN: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{member} cannot be reached: {error}")]
    Connect { member: String, error: std::io::Error },
    #[error("{member} does not answer: {why}")]
    Silent { member: String, why: String },
    #[error("{member} is not trusted over TLS, or does not trust this host: {why}")]
    Tls { member: String, why: String },
    #[error("{member} refuses: {message}; hint: {remedy}")]
    Denied { member: String, message: String, remedy: &'static str },
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("{member} refuses with status {status}: {message}")]
    Refused { member: String, status: StatusCode, message: String },
    #[error("the answer of {member} is not that of etcd: {why}")]
    Unreadable { member: String, why: String },
    #[error("the store has discarded its history up to revision {revision}")]
    Compacted { revision: u64 },
}

#[derive(Debug)]
pub(crate) struct Gateway {
    members: Vec<String>,
    /// The member that answered last.
    first: AtomicUsize,
    tls: Option<StoreTls>,
    user: Option<StoreUser>,
}

/// The connection of an answer; dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) member: String,
    _client: HttpClient,
}

impl Gateway {
    pub(crate) fn new(address: &StoreAddress, access: &StoreAccess) -> Result<Self, AccessError> {
        let tls = access.check(address)?.map(|first| StoreTls::new(access.clone(), first));
        let (members, user) = (address.members.clone(), StoreUser::of(access));
        Ok(Self { members, first: AtomicUsize::new(0), tls, user })
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
        Err(last.unwrap_or_else(|| silent("the store", "its address names no member")))
    }

    /// Asks one member; another one only if the first cannot be reached.
    pub(crate) async fn ask_once(&self, path: &str, body: &Value) -> Result<Answer, StoreError> {
        let mut last = None;
        for _ in 0..self.members.len() {
            match self.ask_next(path, body).await {
                Err(error @ (StoreError::Connect { .. } | StoreError::Tls { .. })) => last = Some(error),
                answer => return answer,
            }
            self.first.fetch_add(1, Ordering::Relaxed);
        }
        Err(last.unwrap_or_else(|| silent("the store", "its address names no member")))
    }

    async fn ask_next(&self, path: &str, body: &Value) -> Result<Answer, StoreError> {
        let (stream, answer) = self.open_next(path, body).await?;
        let member = &stream.member;
        let whole = timeout(ANSWER, collect_body(answer, LONGEST)).await;
        let whole = whole.map_err(|_| silent(member, "its answer did not end in time"))?;
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
        // A watch with a token that has ended is refused in the words of one without permission.
        if let Some(user) = &self.user {
            user.set(None);
        }
        let mut last = None;
        for _ in 0..self.members.len() {
            match self.open_next(path, body).await {
                Ok(opened) => return Ok(opened),
                Err(error) => last = Some(error),
            }
            self.first.fetch_add(1, Ordering::Relaxed);
        }
        Err(last.unwrap_or_else(|| silent("the store", "its address names no member")))
    }

    async fn open_next(&self, path: &str, body: &Value) -> Result<(Stream, Response<Incoming>), StoreError> {
        let turn = self.first.load(Ordering::Relaxed) % self.members.len().max(1);
        let member = self.members.get(turn).cloned().unwrap_or_default();
        let Some(user) = &self.user else {
            return self.exchange(&member, path, body, None).await;
        };
        let first = match user.token() {
            Some(token) => token,
            None => self.authenticate(&member, user).await?,
        };
        match self.exchange(&member, path, body, Some(&first)).await {
            // Nothing was carried out.
            Err(StoreError::Denied { message, .. } | StoreError::Refused { message, .. })
                if user::is_stale(&first, &message) =>
            {
                let renewed = self.authenticate(&member, user).await?;
                self.exchange(&member, path, body, Some(&renewed)).await
            }
            answer => answer,
        }
    }

    /// Gets a token, which all members know.
    async fn authenticate(&self, member: &str, user: &StoreUser) -> Result<Token, StoreError> {
        let answer = self.exchange(member, "/v3/auth/authenticate", &user.request()?, None).await;
        let token = match answer {
            Ok((stream, answer)) => {
                let unreadable =
                    |why: &str| StoreError::Unreadable { member: stream.member.clone(), why: why.to_owned() };
                let body = timeout(ANSWER, collect_body(answer, LONGEST_TOKEN)).await;
                let body = body.map_err(|_| silent(member, "its answer did not end in time"))?;
                let body = body.map_err(|error| failed(member, error))?;
                let body: Value =
                    serde_json::from_slice(&body).map_err(|error| unreadable(&error.to_string()))?;
                let token = body["token"].as_str().and_then(|token| HeaderValue::from_str(token).ok());
                let mut token = token.ok_or_else(|| unreadable("it contains no token for the user"))?;
                token.set_sensitive(true);
                Token::Header(token)
            }
            Err(StoreError::Refused { message, .. }) if message.contains(user::NOT_ENABLED) => {
                Token::NotRequired
            }
            Err(error) => return Err(error),
        };
        user.set(Some(token.clone()));
        Ok(token)
    }

    async fn exchange(
        &self,
        member: &str,
        path: &str,
        body: &Value,
        token: Option<&Token>,
    ) -> Result<(Stream, Response<Incoming>), StoreError> {
        let mut request = Request::post(path)
            .header(CONTENT_TYPE, "application/json")
            // Without it a member that is cut off from the others lets a watch wait for ever.
            .header("Grpc-Metadata-hasleader", "true");
        if let Some(Token::Header(token)) = token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Full::new(Bytes::from(body.to_string())));
        let request = request.map_err(|error| silent(member, &error.to_string()))?;
        let mut client = self.client(member);
        let answer = timeout(CONNECT + ANSWER, client.send(request)).await;
        let answer = answer.map_err(|_| silent(member, "it did not answer in time"))?;
        let answer = answer.map_err(|error| failed(member, error))?;
        let status = answer.status();
        if status == StatusCode::OK {
            return Ok((Stream { member: member.to_owned(), _client: client }, answer));
        }
        let message = timeout(ANSWER, collect_body(answer, 4096)).await.ok();
        let message = message.and_then(Result::ok).unwrap_or_default();
        let (member, message) = (member.to_owned(), String::from_utf8_lossy(&message).trim().to_owned());
        Err(match user::remedy(&message, self.user.is_some()) {
            Some(remedy) => StoreError::Denied { member, message, remedy },
            None => StoreError::Refused { member, status, message },
        })
    }

    fn client(&self, member: &str) -> HttpClient {
        let client = HttpClient::at(member).connect_within(CONNECT);
        match &self.tls {
            Some(tls) => {
                client.over(TlsMember { address: member.to_owned(), tls: tls.current(), within: CONNECT })
            }
            None => client,
        }
    }
}

fn failed(member: &str, error: HttpClientError) -> StoreError {
    if let Some(why) = tls_failure(&error) {
        return StoreError::Tls { member: member.to_owned(), why };
    }
    match error {
        HttpClientError::Connect { error, .. } => StoreError::Connect { member: member.to_owned(), error },
        error @ HttpClientError::Body { .. } => silent(member, &error.to_string()),
        // So a member that speaks TLS ends a connection without it.
        HttpClientError::Exchange(error) if error.is_incomplete_message() => {
            silent(member, &format!("{error}; hint: the address of a store over TLS begins with etcds://"))
        }
        HttpClientError::Exchange(error) => silent(member, &error.to_string()),
    }
}

fn silent(member: &str, why: &str) -> StoreError {
    StoreError::Silent { member: member.to_owned(), why: why.to_owned() }
}
