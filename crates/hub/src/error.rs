//! Errors of a download: the file or address, the fault and the remedy.

use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_model::ModelError;
use plimsoll_model::gguf::GgufError;

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
    #[error("this is no address of a model file; write http://HOST/PATH.gguf or https://HOST/PATH.gguf")]
    NoAddress,
    #[error("this is no repository; write USER/REPO or USER/REPO:QUANT")]
    NoRepository,
    #[error("models of Docker Hub are not read before they are downloaded; give the file with -m")]
    Docker,
    #[error("it is in no cache on this machine, and --offline forbids to fetch it")]
    Offline,
    #[error("cannot be reached: {0}\nhint: check the network, or HF_ENDPOINT, or give a local file with -m")]
    Unreachable(String),
    #[error(
        "no answer within {} s; try again, or set HF_ENDPOINT to a mirror that is nearer",
        .0.as_secs_f32()
    )]
    Slow(Duration),
    #[error("the answer broke off: {0}\nhint: try again")]
    Broken(String),
    #[error(
        "the server wants a token that may read it (status {status}), or there is no such repository\n\
         hint: check the name; set HF_TOKEN; for a gated model accept its terms on its page first"
    )]
    Forbidden { status: u16 },
    #[error(
        "the server does not have it (status 404)\nhint: check the name; the hub's page of the repository lists its files"
    )]
    Missing,
    #[error("the server refuses more requests for now (status 429){}\nhint: a token in HF_TOKEN raises the limit", after(.0))]
    TooMany(Option<u64>),
    #[error("the server answered with status {0}\nhint: try again, or download the file and give it with -m")]
    Status(u16),
    #[error("more than {0} redirects\nhint: give the address that they lead to")]
    Redirects(u32),
    #[error("redirected to `{0}`, which is no address that may be followed (https stays https)")]
    BadRedirect(String),
    #[error(
        "the server sends no ranges of a file, so its header cannot be read alone\nhint: download the file and give it with -m"
    )]
    NoRanges,
    #[error(
        "the server sent another range than the one that was asked for: {0}\nhint: try again without a proxy"
    )]
    WrongRange(String),
    #[error("the file changed on the server while its header was read\nhint: try again")]
    Changed,
    #[error(
        "the server says {said} bytes and the hub's list says {listed}; one of them is wrong\nhint: try again, or download the file"
    )]
    Length { said: u64, listed: u64 },
    #[error(
        "its header is longer than {limit}, or damaged: it asks for {} of the file\n\
         hint: a real header is shorter; --header-limit raises the limit", Bytes::new(*.needed)
    )]
    TooLong { limit: Bytes, needed: u64 },
    #[error("its header needed more than {0} requests\nhint: download the file and give it with -m")]
    Requests(u32),
    #[error("{0}")]
    Header(#[from] GgufError),
    #[error("{0}")]
    Model(#[from] ModelError),
    #[error(
        "the hub's answer is not understood: {0}\nhint: check HF_ENDPOINT; an old mirror may lack this interface"
    )]
    Answer(String),
    #[error("it holds no model in GGUF form\nhint: look for a repository whose name ends in -GGUF")]
    NoModel,
    #[error("it holds a preset (preset.ini), which names other models\nhint: plan one of those")]
    Preset,
    #[error("it has no file of `{tag}`; it has {}", listed(.has))]
    NoSuchQuant { tag: String, has: Vec<String> },
    #[error("it has no file `{file}`; it has {}", listed(.has))]
    NoSuchFile { file: String, has: Vec<String> },
    #[error("file {number} of {count} of the set is not in the repository")]
    Incomplete { number: u16, count: u16 },
    #[error(
        "the token holds characters that no token has\nhint: set HF_TOKEN again, without quotes and line ends"
    )]
    Token,
    #[error(
        "no certificate of an authority was found on this machine\nhint: install ca-certificates, or set SSL_CERT_FILE"
    )]
    NoRoots,
}

impl HubFailure {
    /// The failure, of this address or repository.
    pub(crate) fn of(self, of: impl ToString) -> HubError {
        HubError { of: of.to_string(), failure: self }
    }

    /// True where another answer of the server would do: the network, the server's load, a token.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Unreachable(_) | Self::Slow(_) | Self::Broken(_) | Self::TooMany(_) | Self::Status(500..)
        )
    }
}

fn after(seconds: &Option<u64>) -> String {
    seconds.map_or_else(String::new, |seconds| format!("; it takes them again in {seconds} s"))
}

/// A few of the names, and how many there are besides.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 24;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
