//! Sets up the membership in a fleet: host name, addresses, port for hosts, and credentials.
//!
//! The settings and the host's certificate determine them.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use http::HeaderValue;
use plimsoll_base::{Bytes, Card, CardKind};
use plimsoll_config::ServeSettings;
use plimsoll_etcd::{AccessError, Etcd, StoreAccess, StoreAddress, StoreAddressError};
use plimsoll_fleet::{FleetNode, KeySpace, NodeSettings};
use plimsoll_identity::HostIdentity;
use tokio::sync::Notify;

use super::FleetMember;
use super::files::SharedFiles;
use super::reported_news::ReportedNews;
use super::trust::{CertificateProblem, HostTrust};

/// Hosts up to which all watch the store, if the configuration says nothing.
const WATCHERS: usize = 300;
/// Longest time that a request waits for a seat, if the configuration says nothing.
const WAIT: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error(transparent)]
    Store(#[from] StoreAddressError),
    #[error("in [fleet]: {0}")]
    Access(#[from] AccessError),
    #[error(
        "`{0}` is not a valid host name in a fleet; hint: set `host` under [fleet], with a-z, 0-9, '-', '.' and '_'"
    )]
    Name(String),
    #[error("other hosts cannot reach this one at {0}; hint: set `address` under [fleet]")]
    Address(SocketAddr),
    #[error(
        "hosts of a fleet authenticate by certificate or key, but neither `identity` nor `key-file` is set under \
            [fleet]; hint: \
            `plimsoll fleet init` and `plimsoll fleet join` make the folder for `identity`"
    )]
    NoKey,
    #[error("`identity` and `key-file` are both set under [fleet]; keep one of them")]
    TwoProofs,
    #[error(transparent)]
    Identity(plimsoll_identity::IdentityError),
    #[error("the certificate of this host has expired and could not be renewed: {0}")]
    Renew(plimsoll_identity::JoinError),
    #[error("the identity in {} is of host '{host}' in fleet '{fleet}', but `{key}` under [fleet] names \
        another", folder.display())]
    OtherIdentity { folder: PathBuf, host: String, fleet: String, key: &'static str },
    #[error("this host is not a member of the fleet: {problem}; hint: remove {} and join with a new invitation", folder.display())]
    Certificate { folder: PathBuf, problem: CertificateProblem },
    #[error(
        "cannot listen for other hosts at `{0}`; hint: set `listen` under [fleet] to an address of this machine"
    )]
    PeerAddress(String),
    #[error("cannot read the fleet's key from {}: {error}", path.display())]
    ReadKey { path: PathBuf, error: std::io::Error },
    #[error("`share-bandwidth` under [fleet] is {given} a second, but must be at least {least}")]
    Bandwidth { given: Bytes, least: Bytes },
    #[error("the fleet's key in {} is shorter than 16 characters", .0.display())]
    ShortKey(PathBuf),
}

impl FleetError {
    /// True for a fault of the configuration, or of a file that it names.
    pub fn is_input(&self) -> bool {
        matches!(
            self,
            Self::NoKey
                | Self::Access(_)
                | Self::TwoProofs
                | Self::ReadKey { .. }
                | Self::Bandwidth { .. }
                | Self::ShortKey(_)
        )
    }
}

impl FleetMember {
    /// The member that the settings describe; `None` for a server of its own.
    pub fn of(
        serve: &ServeSettings,
        listens: SocketAddr,
        served: Vec<Card>,
    ) -> Result<Option<Self>, FleetError> {
        let Some(store) = &serve.fleet else { return Ok(None) };
        let store: StoreAddress = store.parse()?;
        let place = HostPlace::of(serve, &store, listens)?;
        // Memory of the host counts only where models are computed there.
        let gpus: Vec<Card> = served.iter().filter(|card| card.kind != CardKind::Host).cloned().collect();
        let cards = if gpus.is_empty() { served } else { gpus };
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seed = u64::try_from(began.as_nanos() & u128::from(u64::MAX)).unwrap_or_default();
        let node = FleetNode::new(NodeSettings {
            life: format!("{seed:x}-{:x}", std::process::id()),
            machine: format!("{} {}", line_of("/etc/machine-id"), place.address),
            name: place.name,
            address: place.address,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            capacity: cards.iter().map(|card| card.free).sum(),
            seed,
            wait: serve.wait.unwrap_or(WAIT),
            watchers: serve.fleet_watchers.unwrap_or(WATCHERS),
        });
        Ok(Some(Self {
            name: place.header,
            node: RefCell::new(node),
            store: Etcd::new(&store, place.keys, &store_access(serve))?
                .beginning_at(usize::try_from(seed % 997).unwrap_or_default()),
            lease: Cell::new(0),
            lease_given_up: Notify::new(),
            is_following: Cell::new(false),
            leaves_source: Cell::new(false),
            source_left: Notify::new(),
            reported: ReportedNews::default(),
            trust: place.trust,
            peer_port: place.peer_port,
            refused: RefCell::default(),
            cards,
            offers: RefCell::default(),
            offers_changed: Cell::new(false),
            files: SharedFiles::of(serve)?,
            copies_reported: RefCell::default(),
            replicas: RefCell::default(),
            runtime: OnceCell::new(),
            me: OnceCell::new(),
            waiting: RefCell::default(),
            next_request: Cell::new(1),
            peers: RefCell::default(),
            start: Instant::now(),
            wake_at: Cell::new(None),
            wake: Notify::new(),
            name_is_taken: Cell::new(false),
            passed_on: Cell::new(0),
        }))
    }
}

/// Name and addresses of this host, and its proof that they are its own.
struct HostPlace {
    name: String,
    /// The name as a header carries it.
    header: HeaderValue,
    keys: KeySpace,
    trust: HostTrust,
    /// Where other hosts reach it.
    address: String,
    peer_port: Option<SocketAddr>,
}

impl HostPlace {
    fn of(serve: &ServeSettings, store: &StoreAddress, listens: SocketAddr) -> Result<Self, FleetError> {
        let own = serve.fleet_host.clone();
        // Before a proof is read: the name is what the user can mend at once.
        if let Some(wrong) = own.as_ref().filter(|name| !KeySpace::is_name(name)) {
            return Err(FleetError::Name(wrong.clone()));
        }
        let trust = HostTrust::of(serve)?;
        let identity = trust.certificates().map(|certificates| certificates.identity().clone());
        if let (Some(identity), Some(folder)) = (&identity, &serve.fleet_identity) {
            agree(identity, folder, &store.fleet, own.as_deref())?;
        }
        let own = own.or_else(|| identity.as_ref().map(|identity| identity.host.clone()));
        let name = own.unwrap_or_else(|| line_of("/proc/sys/kernel/hostname"));
        let keys = KeySpace::of(&store.fleet).filter(|_| KeySpace::is_name(&name));
        let (Some(keys), Ok(header)) = (keys, HeaderValue::from_str(&name)) else {
            return Err(FleetError::Name(name));
        };
        let reported = serve.fleet_address.clone().or_else(|| identity.map(|identity| identity.address));
        let peer_port = match (serve.fleet_listen, &reported) {
            (Some(listen), _) => Some(listen),
            (None, Some(reported)) if trust.certificates().is_some() => {
                Some(reported.parse().map_err(|_| FleetError::PeerAddress(reported.clone()))?)
            }
            _ => None,
        };
        let reached = peer_port.unwrap_or(listens);
        let address = match reported {
            Some(address) => address,
            None if reached.ip().is_unspecified() => return Err(FleetError::Address(reached)),
            None => reached.to_string(),
        };
        Ok(Self { name, header, keys, trust, address, peer_port })
    }
}

fn store_access(serve: &ServeSettings) -> StoreAccess {
    StoreAccess {
        ca: serve.fleet_store_ca.clone(),
        certificate: serve.fleet_store_certificate.clone(),
        certificate_key: serve.fleet_store_certificate_key.clone(),
        user: serve.fleet_store_user.clone(),
        password_file: serve.fleet_store_password_file.clone(),
    }
}

fn line_of(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Configuration and certificate name the same host and fleet.
fn agree(identity: &HostIdentity, folder: &Path, fleet: &str, host: Option<&str>) -> Result<(), FleetError> {
    let key = match host {
        _ if identity.fleet != fleet => "store",
        Some(host) if identity.host != host => "host",
        _ => return Ok(()),
    };
    let (host, fleet, folder) = (identity.host.clone(), identity.fleet.clone(), folder.to_owned());
    Err(FleetError::OtherIdentity { folder, host, fleet, key })
}
