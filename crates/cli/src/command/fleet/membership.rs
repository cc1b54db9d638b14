//! `plimsoll fleet init`, `invite`, `join` and `revoke`: issue, fetch and revoke the certificates of a
//! fleet's hosts.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use plimsoll_fleet::{FleetKey, Record, Revocation, Transaction, TransactionOutcome, Write};
use plimsoll_identity::{
    FleetAuthority, FleetIssuer, HostIdentity, Invitation, IssuedCertificate, PEER_PORT, join, now,
};
use plimsoll_verb::time;
use rustix::process::geteuid;

use super::Store;
use crate::report::{ErrorReport, print};
use crate::terminal;

/// Lifetime of certificates, and of invitations.
const LIFETIME: &str = "90d";
const INVITED: &str = "1h";
/// Writes of one transaction; etcd takes 128 (`--max-txn-ops`).
const MOST_WRITES: usize = 100;

#[derive(Debug, Args)]
pub(super) struct Folder {
    /// Folder of this host's certificate and key [default: /etc/plimsoll/fleet, or plimsoll/fleet in the
    /// user's configuration]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Name {
    /// This host's name in the fleet [default: the machine's host name]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct Init {
    /// Address at which other hosts reach this one; the port serves nothing else and is 7079 by default
    #[arg(value_name = "ADDRESS[:PORT]")]
    address: String,
    #[command(flatten)]
    name: Name,
    /// The fleet's name, as in etcd://HOST/NAME
    #[arg(long, value_name = "NAME", default_value = "default")]
    fleet: String,
    /// How long certificates are valid; hosts renew them when a third of the time is left
    #[arg(long, value_name = "TIME", value_parser = time, default_value = LIFETIME)]
    lifetime: Duration,
    #[command(flatten)]
    folder: Folder,
}

#[derive(Debug, Args)]
pub(super) struct Invite {
    /// How long the invitation is valid
    #[arg(long = "for", value_name = "TIME", value_parser = time, default_value = INVITED)]
    valid: Duration,
    #[command(flatten)]
    folder: Folder,
}

#[derive(Debug, Args)]
pub(super) struct Join {
    /// The line that `plimsoll fleet invite` has printed
    invitation: Invitation,
    /// Address at which other hosts reach this one [default: the one from which it reaches the inviting host,
    /// port 7079]
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    address: Option<String>,
    #[command(flatten)]
    name: Name,
    #[command(flatten)]
    folder: Folder,
}

#[derive(Debug, Args)]
pub(super) struct Revoke {
    /// Name of the host
    host: String,
    #[command(flatten)]
    store: Store,
    #[command(flatten)]
    folder: Folder,
}

impl Folder {
    fn path(&self) -> Result<PathBuf, ErrorReport> {
        if let Some(folder) = &self.folder {
            return Ok(folder.clone());
        }
        if geteuid().is_root() {
            return Ok(PathBuf::from("/etc/plimsoll/fleet"));
        }
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let configuration = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
        let configuration = configuration.ok_or_else(|| {
            ErrorReport::input(ErrorReport::new("neither XDG_CONFIG_HOME nor HOME is set; give --folder"))
        })?;
        Ok(configuration.join("plimsoll/fleet"))
    }
}

impl Name {
    fn get(&self) -> String {
        let machine = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        self.host.clone().unwrap_or_else(|| machine().trim().to_owned())
    }
}

/// The address with a port.
fn with_port(address: &str) -> String {
    let has_port = match address.rsplit_once(':') {
        Some((host, port)) => port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')),
        None => false,
    };
    match address.parse::<std::net::Ipv6Addr>() {
        _ if has_port => address.to_owned(),
        Ok(address) => format!("[{address}]:{PEER_PORT}"),
        Err(_) => format!("{address}:{PEER_PORT}"),
    }
}

pub(super) fn init(arguments: Init) -> Result<(), ErrorReport> {
    let folder = arguments.folder.path()?;
    let (host, address) = (arguments.name.get(), with_port(&arguments.address));
    let issuer = FleetIssuer { host: host.clone(), address: address.clone() };
    let authority = FleetAuthority::create(&folder, &arguments.fleet, issuer, arguments.lifetime, now())?;
    let shown = folder.display();
    print(format!(
        "host '{host}' has the authority of fleet '{}' (SHA-256 {}) and its own certificate, in {shown}\n\
        keep a copy of {shown}/authority: without it no host joins, and no certificate is renewed\n\
        next: `identity = \"{shown}\"` under [fleet], `plimsoll serve CONFIG --fleet STORE`, which listens for hosts at \
        {address}; then `plimsoll fleet invite` for each further host\n",
        arguments.fleet,
        authority.digest(),
    ))
}

pub(super) fn invite(arguments: &Invite) -> Result<(), ErrorReport> {
    let folder = arguments.folder.path()?;
    let invitation = authority(&folder)?.invite(arguments.valid, now())?;
    // Alone on stdout, for a pipe to the other host.
    print(format!("{invitation}\n"))?;
    let valid = arguments.valid.as_secs();
    let _ = writeln!(
        terminal::stderr(),
        "one host may join with this in the next {valid} s, while `plimsoll serve` runs here:\n  \
        plimsoll fleet join INVITATION"
    );
    Ok(())
}

pub(super) async fn join_fleet(arguments: Join) -> Result<(), ErrorReport> {
    let folder = arguments.folder.path()?;
    let address = arguments.address.as_deref().map(with_port);
    let name = arguments.name.get();
    let identity = join(&folder, &arguments.invitation, &name, address).await?;
    let (host, fleet, shown) = (&identity.host, &identity.fleet, folder.display());
    print(format!(
        "host '{host}' is in fleet '{fleet}'; its certificate {} is in {shown}\n\
        next: `identity = \"{shown}\"` under [fleet], and `plimsoll serve CONFIG --fleet STORE`, which listens for hosts at \
        {}\n",
        identity.serial, identity.address,
    ))
}

/// Revokes the certificates of a host, here and in the store, which tells all hosts their serial numbers.
pub(super) async fn revoke(arguments: Revoke) -> Result<(), ErrorReport> {
    let folder = arguments.folder.path()?;
    let revoked = authority(&folder)?.revoke(&arguments.host, now())?;
    if revoked.is_empty() {
        let text = format!("there is no valid certificate for host `{}`", arguments.host);
        return Err(ErrorReport::input(ErrorReport::new(text)));
    }
    let store = arguments.store.open()?;
    for transaction in revocations(&revoked) {
        let why = match store.transact(&transaction, 0).await {
            TransactionOutcome::Applied(_) => continue,
            TransactionOutcome::Full => "the store is full",
            TransactionOutcome::Conflict | TransactionOutcome::Unknown => "the store does not answer",
        };
        return Err(ErrorReport::new(format!(
            "the certificate will not be renewed, but {why}, so other hosts may still accept it; revoke it again later"
        )));
    }
    print(format!(
        "{}: {} revoked; every host of the fleet refuses it\n",
        arguments.host,
        match revoked.len() {
            1 => "its certificate is".to_owned(),
            more => format!("its {more} certificates are"),
        }
    ))
}

/// The writes that revoke certificates, in transactions that etcd takes. A register of an earlier version may
/// have thousands of one host.
fn revocations(revoked: &[IssuedCertificate]) -> Vec<Transaction> {
    let write = |one: &IssuedCertificate| {
        let record = Record::new(Revocation { expires: one.expires });
        Write::put(FleetKey::Revoked(one.serial.clone()), record.write())
    };
    let batches = revoked.chunks(MOST_WRITES);
    batches
        .map(|batch| Transaction { compares: Vec::new(), writes: batch.iter().map(write).collect() })
        .collect()
}

fn authority(folder: &std::path::Path) -> Result<FleetAuthority, ErrorReport> {
    if let Some(authority) = FleetAuthority::open(folder)? {
        return Ok(authority);
    }
    let text = match HostIdentity::read(folder) {
        Ok(identity) => format!(
            "this host does not have the fleet's authority; host '{}' at {} has it",
            identity.issuer.host, identity.issuer.address
        ),
        Err(_) => format!("{} contains no fleet; create one with `plimsoll fleet init`", folder.display()),
    };
    Err(ErrorReport::input(ErrorReport::new(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_any_number_of_certificates_is_revoked_in_transactions_that_etcd_takes() {
        let one = |at: u64| IssuedCertificate {
            serial: format!("{at:x}"),
            host: "box-2".to_owned(),
            expires: at,
            is_revoked: true,
        };
        let revoked: Vec<IssuedCertificate> = (0..1001).map(one).collect();
        let transactions = revocations(&revoked);
        assert!(transactions.iter().all(|one| (1..=128).contains(&one.writes.len())));
        assert_eq!(transactions.iter().map(|one| one.writes.len()).sum::<usize>(), revoked.len());
    }

    #[test]
    fn an_address_without_a_port_gets_that_of_hosts() {
        for (given, expected) in [
            ("10.0.0.1", "10.0.0.1:7079"),
            ("10.0.0.1:9", "10.0.0.1:9"),
            ("box-1", "box-1:7079"),
            ("fd00::1", "[fd00::1]:7079"),
            ("[fd00::1]:9", "[fd00::1]:9"),
            ("[fd00::1]", "[fd00::1]:7079"),
        ] {
            assert_eq!(with_port(given), expected);
        }
    }
}
