//! HTTP client with limits on time, redirects and lengths, and on the hosts that get the access token.

use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use http::header::{
    ACCEPT_RANGES, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, ETAG, LOCATION, RANGE, RETRY_AFTER,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, Uri};
use plimsoll_base::Bytes;
use ureq::config::Config;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Body, Proxy};

use crate::address::{Address, is_public, printable};
use crate::error::{HubError, HubFailure};

/// Redirects that are followed; the hub needs one or two.
const REDIRECTS: u32 = 5;
/// Longest answer of the hub's interface.
const LONGEST_ANSWER: u64 = 16 << 20;

/// Limits of a fetch.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Time for one request.
    pub patience: Duration,
    /// Bytes of a file within which its header must end.
    pub header: Bytes,
    /// Besides the hub, only servers of the public network are asked, also behind a redirect. For clients
    /// that this machine's own network must not be shown to.
    pub public_only: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { patience: Duration::from_secs(30), header: Bytes::mib(32), public_only: false }
    }
}

/// Requests and bytes so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub requests: u64,
    pub bytes: u64,
}

#[derive(Debug)]
pub struct Client {
    agent: OnceLock<Agent>,
    direct: OnceLock<Agent>,
    public: OnceLock<Agent>,
    hub: Address,
    token: Option<HeaderValue>,
    pub(crate) bounds: Bounds,
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// Part of a file, with the server's description of the whole.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) bytes: Vec<u8>,
    pub(crate) total: u64,
    /// Of one state of the file alone.
    pub(crate) etag: Option<String>,
    /// SHA-256 of the whole file, which the hub states on its redirect.
    pub(crate) digest: Option<String>,
    /// The address behind the redirects.
    pub(crate) at: Address,
}

impl Client {
    /// A client of the hub at `hub`, where alone `token` is sent.
    pub fn new(hub: Address, token: Option<&str>, bounds: Bounds) -> Result<Self, HubError> {
        let bearer = |token: &str| {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"));
            if let Ok(value) = &mut value {
                value.set_sensitive(true);
            }
            value.map_err(|_| HubFailure::Token.of(&hub))
        };
        let token = token.map(str::trim).filter(|token| !token.is_empty()).map(bearer).transpose()?;
        Ok(Self {
            agent: OnceLock::new(),
            direct: OnceLock::new(),
            public: OnceLock::new(),
            token,
            bounds,
            hub,
            requests: AtomicU64::default(),
            bytes: AtomicU64::default(),
        })
    }

    pub fn hub(&self) -> &Address {
        &self.hub
    }

    pub fn traffic(&self) -> Traffic {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Traffic { requests: read(&self.requests), bytes: read(&self.bytes) }
    }

    /// An answer of the hub's interface, and the address of its next page.
    pub(crate) fn answer(&self, address: &Address) -> Result<(Vec<u8>, Option<Address>), HubError> {
        let (response, at, _) = self.get(address, None, self.bounds.patience)?;
        let next = response.headers().get("link").and_then(|link| next_page(link.to_str().ok()?));
        let next = next.and_then(|next| at.redirected(&next));
        let (bytes, _) = self.read(response.into_body().into_reader(), LONGEST_ANSWER + 1, address)?;
        if widened(bytes.len()) > LONGEST_ANSWER {
            let why = format!("the answer is longer than {}", Bytes::new(LONGEST_ANSWER));
            return Err(HubFailure::Answer(why).of(address));
        }
        Ok((bytes, next))
    }

    /// The whole of a file as one answer, of `size` bytes, with the time of a part for each `part` bytes.
    pub(crate) fn whole(
        &self,
        address: &Address,
        size: u64,
        part: u64,
    ) -> Result<impl Read + use<>, HubError> {
        let parts = u32::try_from(size / part.max(1)).unwrap_or(u32::MAX).saturating_add(1);
        let (response, ..) = self.get(address, None, self.bounds.patience.saturating_mul(parts))?;
        let length =
            response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        match length.unwrap_or(size) {
            stated if stated != size => Err(HubFailure::Length { stated, listed: size }.of(address)),
            _ => Ok(response.into_body().into_reader()),
        }
    }

    /// The bytes of a file from `start`, `length` of them or up to its end.
    pub(crate) fn part(&self, address: &Address, start: u64, length: u64) -> Result<Part, HubError> {
        let end = start.saturating_add(length.max(1)) - 1;
        let range = Some(format!("bytes={start}-{end}"));
        let (response, at, digest) = self.get(address, range, self.bounds.patience)?;
        if response.status() == 200 {
            return Err(HubFailure::NoRanges.of(address));
        }
        let headers = response.headers();
        let text = |name: HeaderName| Some(headers.get(name)?.to_str().ok()?.to_owned());
        let range = text(CONTENT_RANGE).unwrap_or_default();
        let (from, to, total) =
            content_range(&range).ok_or_else(|| HubFailure::WrongRange(printable(&range)).of(address))?;
        if from != start || to > end || to >= total {
            return Err(HubFailure::WrongRange(printable(&range)).of(address));
        }
        // A weak one is the same for different bytes (RFC 9110 section 8.8.1).
        let etag = text(ETAG).filter(|etag| !etag.starts_with("W/"));
        let (bytes, _) = self.read(response.into_body().into_reader(), to - from + 1, address)?;
        if widened(bytes.len()) != to - from + 1 {
            let why = format!("only {} of {} bytes arrived", bytes.len(), to - from + 1);
            return Err(HubFailure::Broken(why).of(address));
        }
        Ok(Part { bytes, total, etag, digest, at })
    }

    /// Follows redirects up to an answer with status 200 or 206. Also gives the digest that was stated on the
    /// way.
    fn get(
        &self,
        address: &Address,
        range: Option<String>,
        patience: Duration,
    ) -> Result<(Response<Body>, Address, Option<String>), HubError> {
        let mut at = address.clone();
        let mut digest = None;
        for _ in 0..=REDIRECTS {
            let response =
                self.once(&at, range.as_deref(), patience).map_err(|failure| failure.of(address))?;
            digest = digest.or_else(|| stated_digest(response.headers()));
            match response.status().as_u16() {
                200 | 206 => return Ok((response, at, digest)),
                301 | 302 | 303 | 307 | 308 => {
                    let location = response.headers().get(LOCATION).map(HeaderValue::as_bytes);
                    let location = String::from_utf8_lossy(location.unwrap_or_default()).into_owned();
                    let next = at.redirected(&location);
                    at = next.ok_or_else(|| HubFailure::BadRedirect(unsigned(&location)).of(address))?;
                }
                401 | 403 if self.token.is_some() && self.hub.is_at(&at) && !self.hub.trusts(&at) => {
                    return Err(HubFailure::TokenWithheld.of(address));
                }
                status => return Err(refusal(status, response.headers()).of(address)),
            }
        }
        Err(HubFailure::Redirects(REDIRECTS).of(address))
    }

    fn once(
        &self,
        at: &Address,
        range: Option<&str>,
        patience: Duration,
    ) -> Result<Response<Body>, HubFailure> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        // The operator chose the hub.
        let agent = if self.bounds.public_only && !self.hub.is_at(at) {
            if at.is_private() {
                return Err(HubFailure::NotPublic);
            }
            self.public.get_or_init(|| public_agent(self.bounds))
        } else if at.is_loopback() {
            // A proxy reaches other hosts; this machine it does not.
            self.direct.get_or_init(|| agent(self.bounds, false))
        } else {
            self.agent.get_or_init(|| agent(self.bounds, true))
        };
        let mut request = agent.get(at.full());
        if let Some(token) = self.token.as_ref().filter(|_| self.hub.trusts(at)) {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some(range) = range {
            request = request.header(RANGE, range);
        }
        let request = request.config().timeout_global(Some(patience)).build();
        request.call().map_err(|error| self.failure(error))
    }

    /// Reads at most so many bytes, and gives the rest back. A body that lies about its length ends at the
    /// limit or at its own end.
    pub(crate) fn read<R: Read>(&self, body: R, most: u64, of: &Address) -> Result<(Vec<u8>, R), HubError> {
        let (mut bytes, mut body) = (Vec::new(), body.take(most));
        let read = body.read_to_end(&mut bytes);
        self.bytes.fetch_add(widened(bytes.len()), Ordering::Relaxed);
        read.map_err(|error| self.failure(ureq::Error::from(error)).of(of))?;
        Ok((bytes, body.into_inner()))
    }

    fn failure(&self, error: ureq::Error) -> HubFailure {
        match error {
            ureq::Error::Other(error) if error.is::<PrivateHost>() => HubFailure::NotPublic,
            ureq::Error::Timeout(_) => HubFailure::Slow(self.bounds.patience),
            ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                HubFailure::Slow(self.bounds.patience)
            }
            ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                HubFailure::Broken(error.to_string())
            }
            ureq::Error::Protocol(error) => HubFailure::Broken(error.to_string()),
            ureq::Error::Rustls(_) if ROOTS.is_empty() => HubFailure::NoRoots,
            ureq::Error::Io(error) => HubFailure::Unreachable(error.to_string()),
            other => HubFailure::Unreachable(other.to_string()),
        }
    }
}

/// A name whose addresses are all outside the public network.
#[derive(Debug, thiserror::Error)]
#[error("the host has no public address")]
struct PrivateHost;

/// Looks names up, and gives their public addresses alone: a name may lead anywhere, and elsewhere the next
/// time.
#[derive(Debug)]
struct PublicResolver(DefaultResolver);

impl Resolver for PublicResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let mut public = self.empty();
        let found = self.0.resolve(uri, config, timeout)?;
        found.iter().filter(|address| is_public(address.ip())).for_each(|address| public.push(*address));
        if public.is_empty() { Err(ureq::Error::Other(Box::new(PrivateHost))) } else { Ok(public) }
    }
}

/// An agent that reaches the public network alone. Where a proxy is set, the proxy looks names up, and
/// decides.
fn public_agent(bounds: Bounds) -> Agent {
    match Proxy::try_from_env() {
        Some(_) => agent(bounds, true),
        None => {
            let resolver = PublicResolver(DefaultResolver::default());
            Agent::with_parts(config(bounds, false), DefaultConnector::default(), resolver)
        }
    }
}

pub(crate) fn agent(bounds: Bounds, proxied: bool) -> Agent {
    config(bounds, proxied).new_agent()
}

fn config(bounds: Bounds, proxied: bool) -> Config {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(provider)
        .root_certs(RootCerts::Specific(Arc::clone(&ROOTS)))
        .build();
    let config = Agent::config_builder()
        .tls_config(tls)
        .max_redirects(0)
        .http_status_as_error(false)
        .timeout_global(Some(bounds.patience))
        .user_agent(concat!("plimsoll/", env!("CARGO_PKG_VERSION")));
    let config = if proxied { config } else { config.proxy(None) };
    config.build()
}

/// The authorities that this machine trusts, as curl and llama-server use them.
static ROOTS: LazyLock<Arc<Vec<Certificate<'static>>>> = LazyLock::new(|| {
    let found = rustls_native_certs::load_native_certs().certs;
    Arc::new(found.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect())
});

fn refusal(status: u16, headers: &HeaderMap) -> HubFailure {
    match status {
        401 | 403 => HubFailure::Forbidden { status },
        404 | 410 => HubFailure::Missing,
        429 => {
            let after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            HubFailure::TooMany(after)
        }
        416 => HubFailure::WrongRange("status 416: the file is shorter or empty".to_owned()),
        // A server without ranges says so here, where it does not simply send everything.
        _ if headers.get(ACCEPT_RANGES).is_some_and(|value| value == "none") => HubFailure::NoRanges,
        _ => HubFailure::Status(status),
    }
}

/// `bytes FROM-TO/TOTAL`.
fn content_range(text: &str) -> Option<(u64, u64, u64)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (from, to) = range.split_once('-')?;
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (from <= to).then_some((from, to, total.parse().ok()?))
}

/// `X-Linked-ETag` is the SHA-256 of a large file; on other files it is something else.
fn stated_digest(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("x-linked-etag")?.to_str().ok()?.trim_matches('"');
    crate::listing::is_sha256(text).then(|| text.to_owned())
}

/// The address of the next page in a `Link` header (RFC 8288).
fn next_page(link: &str) -> Option<String> {
    let mut links = link.split(',');
    let next = links.find(|link| link.contains("rel=\"next\""))?;
    Some(next.trim().strip_prefix('<')?.split_once('>')?.0.to_owned())
}

fn unsigned(location: &str) -> String {
    printable(location.split('?').next().unwrap_or_default())
}

fn widened(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_links_of_a_server_are_read_or_refused() {
        assert_eq!(content_range("bytes 0-9/100"), Some((0, 9, 100)));
        for text in ["", "bytes */100", "bytes 9-0/100", "bytes 0-9/*", "items 0-9/100", "bytes -1-9/100"] {
            assert_eq!(content_range(text), None, "{text}");
        }
        let link = "<https://h/a?cursor=1>; rel=\"next\"";
        assert_eq!(next_page(link).as_deref(), Some("https://h/a?cursor=1"));
        for text in ["", "<https://h/a>; rel=\"prev\"", "rel=\"next\"", "<https://h rel=\"next\""] {
            assert_eq!(next_page(text), None, "{text}");
        }
    }

    #[test]
    fn a_name_is_looked_up_and_none_of_its_private_addresses_is_used() {
        let resolver = PublicResolver(DefaultResolver::default());
        let agent =
            Agent::with_parts(config(Bounds::default(), false), DefaultConnector::default(), resolver);
        let refused = agent.get("http://localhost:9/").call().unwrap_err();
        assert!(matches!(refused, ureq::Error::Other(error) if error.is::<PrivateHost>()));
    }

    #[test]
    fn a_token_that_would_make_a_header_of_its_own_is_refused() {
        let hub = || Address::parse("http://127.0.0.1:1").unwrap();
        let created = |token| Client::new(hub(), Some(token), Bounds::default());
        assert!(created("hf_x\nHost: evil").is_err());
        assert!(created("hf_abc\n").is_ok() && created("").is_ok());
        assert!(!format!("{:?}", created("hf_secret").unwrap()).contains("hf_secret"));
    }
}
