//! Errors of a download, each with the file or address, the fault and the remedy.

use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_model::ModelError;
use plimsoll_model::gguf::{FetchHeaderError, GgufError};
use plimsoll_model::repository::ChoiceError;

/// A failed fetch, with the address or repository that it was of.
#[derive(Debug, thiserror::Error)]
#[error("{of}: {failure}")]
pub struct HubError {
    pub of: String,
    pub failure: HubFailure,
}

/// Reason why a header could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum HubFailure {
    #[error("this is not the address of a model file; write http://HOST/PATH.gguf or https://HOST/PATH.gguf")]
    NoAddress,
    #[error("this is not the name of a repository; write USER/REPO or USER/REPO:QUANT")]
    NoRepository,
    #[error("a model on Docker Hub cannot be planned before it is downloaded; give the file with -m")]
    Docker,
    #[error("the model is not in a cache on this machine, and --offline forbids fetching it")]
    Offline,
    #[error("the server cannot be reached: {0}\nhint: check the network, or HF_ENDPOINT, or use -m FILE")]
    Unreachable(String),
    #[error(
        "the server sent no answer within {} s; try again, or set HF_ENDPOINT to a nearer mirror", .0.as_secs_f32()
    )]
    Slow(Duration),
    #[error("the server's answer ended early: {0}\nhint: try again")]
    Broken(String),
    #[error(
        "the repository does not exist, or reading it needs an access token (status {status})\n\
         hint: check the name; set HF_TOKEN; for a gated model, first accept its terms on its web page"
    )]
    Forbidden { status: u16 },
    #[error(
        "the server asks for an access token, which is not sent over plain http\n\
         hint: write https:// in HF_ENDPOINT, or reach the server through this machine (http://127.0.0.1:PORT)"
    )]
    TokenWithheld,
    #[error(
        "the server does not have this file (status 404)\nhint: check the name; the web page of the repository lists its files"
    )]
    Missing,
    #[error("the server received too many requests (status 429){}\nhint: an access token in HF_TOKEN raises the limit", after(.0))]
    TooMany(Option<u64>),
    #[error("the server answered with status {0}\nhint: try again, or download the file and give it with -m")]
    Status(u16),
    #[error(
        "the server's address is not public, and this client may not have it contacted\nhint: download \
            the model with `plimsoll` on this machine, or with a key of `api-keys`"
    )]
    NotPublic,
    #[error("the server redirects more than {0} times\nhint: give the final address of the file")]
    Redirects(u32),
    #[error("the server redirects to `{0}`, but only http and https are followed, and https never to http")]
    BadRedirect(String),
    #[error(
        "the server does not support range requests, so the header cannot be read alone\nhint: download the file and give it with -m"
    )]
    NoRanges,
    #[error(
        "the server sent a different part of the file than requested: {0}\nhint: try again without a proxy"
    )]
    WrongRange(String),
    #[error("the file changed on the server while its header was read\nhint: try again")]
    Changed,
    #[error(
        "the file has {stated} bytes on the server, but {listed} in the hub's list of files\nhint: try again, or download the file"
    )]
    Length { stated: u64, listed: u64 },
    #[error(transparent)]
    FetchHeader(#[from] FetchHeaderError),
    #[error(
        "the headers of the model's files are longer than {0} together, or damaged\n\
         hint: check the files; if they are sound, --header-limit raises the limit"
    )]
    SetTooLong(Bytes),
    #[error(
        "the connection broke, and the server states neither a SHA-256 nor a strong ETag, so the rest may \
            belong to another file\nhint: try again; the download begins anew"
    )]
    NoValidator,
    #[error("{0}")]
    Header(#[from] GgufError),
    #[error("{0}")]
    Model(#[from] ModelError),
    #[error(
        "the hub's answer cannot be read: {0}\nhint: check HF_ENDPOINT; an old mirror may lack this interface"
    )]
    Answer(String),
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    #[error(
        "the hub states no SHA-256 of this file, so that a download could not be checked\nhint: download the file and give it with -m"
    )]
    NoDigest,
    #[error(
        "the downloaded file has the SHA-256 {got}, but the hub lists {listed}; the file was removed\nhint: try again \
            without a proxy"
    )]
    Digest { listed: String, got: String },
    #[error(
        "{needed} more are needed and {margin} must stay free, but the disk has only {free} free\nhint: remove files, \
            or choose another folder"
    )]
    NoSpace { needed: Bytes, margin: Bytes, free: Bytes },
    #[error("another process is downloading this file\nhint: wait until its download has ended")]
    Busy,
    #[error("the download was cancelled; the downloaded part is kept")]
    Cancelled,
    #[error("the download folder cannot be used: {0}")]
    Disk(String),
    #[error("this path already exists and is not overwritten\nhint: remove it")]
    InTheWay,
    #[error("the received file is not the one that was offered: {0}; it was removed")]
    WrongFile(String),
    #[error("{0}")]
    Host(HostFault),
    #[error(
        "the access token contains characters that no token has\nhint: set HF_TOKEN again, without quotes and line ends"
    )]
    Token,
    #[error(
        "this machine has no certificates to check servers with\nhint: install ca-certificates, or set SSL_CERT_FILE"
    )]
    NoRoots,
}

/// Fault of another host from which a file is copied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostFault {
    /// It does not answer, or its answer breaks off: it may answer again.
    #[error("the host does not answer: {0}")]
    Silent(String),
    #[error("the host refuses to give the file: {0}")]
    Refused(String),
    /// It answers what was not asked, so nothing of it is used.
    #[error("the host sent other data than was requested: {0}")]
    Lies(String),
}

impl HubFailure {
    /// The failure, of this address or repository.
    pub fn of(self, of: impl ToString) -> HubError {
        HubError { of: of.to_string(), failure: self }
    }

    /// True where another answer of the server would do: the network, the server's load, a token.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Unreachable(_)
                | Self::Slow(_)
                | Self::Broken(_)
                | Self::TooMany(_)
                | Self::Status(500..)
                | Self::Host(HostFault::Silent(_))
        )
    }
}

fn after(seconds: &Option<u64>) -> String {
    seconds.map_or_else(String::new, |seconds| format!("; it accepts requests again in {seconds} s"))
}
