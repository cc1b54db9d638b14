//! `plimsoll fleet`: shows the hosts and models that a fleet's store (etcd) records, and starts a trial fleet
//! on one machine.
//!
//! The commands read and write the store directly. To move a model, they run the same store transaction as a
//! daemon.

mod membership;
mod trial;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use plimsoll_base::{Bytes, one_line};
use plimsoll_etcd::{Etcd, StoreAccess, StoreAddress, StoreAddressError};
use plimsoll_fleet::{
    Claim, Drain, FleetKey, FleetView, KeySpace, Record, RunningCopy, SeatDemand, SeatPurpose, Transaction,
    TransactionOutcome, Write, place,
};
use serde_json::{Value, json};

use crate::report::{ErrorReport, print, print_as};

const MORE: &str = "\
Examples:
  plimsoll fleet try --once
  plimsoll fleet init 10.0.0.11
  plimsoll fleet invite
  plimsoll fleet join plimsoll-join-1.eyJmbGVldCI6...
  plimsoll fleet status --store etcd://10.0.0.1,10.0.0.2,10.0.0.3
  plimsoll fleet drain host-2
  plimsoll fleet move qwen3-4b host-1

A fleet is several hosts that run `plimsoll serve --fleet STORE` with the same models. STORE is an etcd, \
    which holds the fleet's records. A client may send its requests to any host.

Exit status: 0, 1 if the store does not answer or refuses, 2 for bad input.";

/// Hosts that are named where another one was asked for.
const MOST_NAMED: usize = 20;
/// Claims that are tried for one move.
const MOVE_TRIES: u32 = 20;
const FULL: &str = "the store is full and accepts no changes\nhint: compact and defragment etcd";
const LOOK_AGAIN: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
#[command(after_help = MORE)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a fleet: its certificate authority, and the certificate of this host
    #[command(after_help = "Example: plimsoll fleet init 10.0.0.11\n\n\
            Exit status: 0, 1 if the store does not answer or refuses, 2 for bad input.")]
    Init(membership::Init),
    /// Print an invitation for one further host; run this on the host that created the fleet
    #[command(after_help = "Example: plimsoll fleet invite\n\n\
            Exit status: 0, 1 if the store does not answer or refuses, 2 for bad input.")]
    Invite(membership::Invite),
    /// Join a fleet with an invitation: get a certificate for this host
    #[command(after_help = "Example: plimsoll fleet join plimsoll-join-1.eyJmbGVldCI6...\n\n\
            Exit status: 0, 1 if the store does not answer or refuses, 2 for bad input.")]
    Join(membership::Join),
    /// Revoke the certificates of a host; run this on the host that created the fleet
    #[command(after_help = "Example: plimsoll fleet revoke host-3\n\n\
            Exit status: 0, 1 if the store does not answer or refuses, 2 for bad input.")]
    Revoke(membership::Revoke),
    /// List the hosts and their models, and which hosts are drained
    #[command(
        visible_alias = "ps",
        after_help = "Example: plimsoll fleet status --store etcd://10.0.0.1\n\n\
            Exit status: 0, 1 if the store does not answer or refuses, 2 for bad input."
    )]
    Status {
        #[command(flatten)]
        store: Store,
        /// Print JSON (plimsoll.fleet/1), or write it to FILE
        #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
        json: Option<PathBuf>,
    },
    /// Place no more models on a host, and unload its idle models
    #[command(after_help = "Example: plimsoll fleet drain host-2\n\n\
            Exit status: 0, 1 if the store does not answer or refuses, 2 for bad input.")]
    Drain(Host),
    /// Place no more models on a host; loaded models stay
    #[command(after_help = "Example: plimsoll fleet cordon host-2\n\n\
            Exit status: 0, 1 if the store does not answer or refuses, 2 for bad input.")]
    Cordon(Host),
    /// Let a drained or cordoned host take models again
    #[command(after_help = "Example: plimsoll fleet uncordon host-2\n\n\
            Exit status: 0, 1 if the store does not answer or refuses, 2 for bad input.")]
    Uncordon(Host),
    /// Drain a host and wait until no model is loaded there; the host can then be stopped
    #[command(after_help = "Example: plimsoll fleet leave host-2\n\n\
            Exit status: 0, 1 if the store does not answer or refuses, 2 for bad input.")]
    Leave(Host),
    /// Move a model to a host; requests in progress finish where they are
    #[command(after_help = "Example: plimsoll fleet move qwen3-4b host-1\n\n\
            Exit status: 0, 1 if the store does not answer or refuses, 2 for bad input.")]
    Move {
        model: String,
        host: String,
        #[command(flatten)]
        store: Store,
    },
    /// Try a fleet on this machine: an etcd of three members, three hosts, and a request to a host without
    /// the model
    Try(trial::Arguments),
}

#[derive(Debug, Args)]
struct Store {
    /// Address of the fleet's store (etcd)
    #[arg(long, value_name = "STORE", env = "PLIMSOLL_FLEET", default_value = "etcd://127.0.0.1")]
    store: String,
    /// File with the certificate authorities to trust for a store over TLS (etcds://)
    #[arg(long, value_name = "FILE", env = "PLIMSOLL_FLEET_CA")]
    store_ca: Option<PathBuf>,
    /// File with this client's certificate for a store over TLS
    #[arg(long, value_name = "FILE", env = "PLIMSOLL_FLEET_CERTIFICATE")]
    store_certificate: Option<PathBuf>,
    /// File with the private key of that certificate
    #[arg(long, value_name = "FILE", env = "PLIMSOLL_FLEET_CERTIFICATE_KEY")]
    store_certificate_key: Option<PathBuf>,
    /// User name for a store that requires one
    #[arg(long, value_name = "USER", env = "PLIMSOLL_FLEET_USER")]
    store_user: Option<String>,
    /// File with the user's password
    #[arg(long, value_name = "FILE", env = "PLIMSOLL_FLEET_PASSWORD_FILE")]
    store_password_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Host {
    /// Name of the host
    host: String,
    /// Accept a host that is not registered now; the command takes effect when it registers
    #[arg(long)]
    absent: bool,
    #[command(flatten)]
    store: Store,
}

impl Store {
    fn open(&self) -> Result<Etcd, ErrorReport> {
        let wrong = |error: StoreAddressError| ErrorReport::input(error);
        let address: StoreAddress = self.store.parse().map_err(wrong)?;
        let keys = KeySpace::of(&address.fleet).unwrap_or_else(|| unreachable!("an address has a good name"));
        let access = StoreAccess {
            ca: self.store_ca.clone(),
            certificate: self.store_certificate.clone(),
            certificate_key: self.store_certificate_key.clone(),
            user: self.store_user.clone(),
            password_file: self.store_password_file.clone(),
        };
        Etcd::new(&address, keys, &access).map_err(ErrorReport::input)
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, ErrorReport> {
    let runtime = super::runtime()?;
    match arguments.verb {
        Verb::Try(arguments) => return trial::run(&runtime, arguments),
        Verb::Init(arguments) => membership::init(arguments)?,
        Verb::Invite(arguments) => membership::invite(&arguments)?,
        Verb::Join(arguments) => runtime.block_on(membership::join_fleet(arguments))?,
        Verb::Revoke(arguments) => runtime.block_on(membership::revoke(arguments))?,
        Verb::Status { store, json } => {
            let view = runtime.block_on(view(&store.open()?))?;
            print_as(json.as_deref(), &as_json(&view), || in_words(&view))?;
        }
        Verb::Drain(host) => runtime.block_on(drain(&host, Some(true)))?,
        Verb::Cordon(host) => runtime.block_on(drain(&host, Some(false)))?,
        Verb::Uncordon(host) => runtime.block_on(drain(&host, None))?,
        Verb::Leave(host) => runtime.block_on(async {
            drain(&host, Some(true)).await?;
            until_empty(&host).await
        })?,
        Verb::Move { model, host, store } => runtime.block_on(move_seat(&store.open()?, &model, &host))?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn view(store: &Etcd) -> Result<FleetView, ErrorReport> {
    let (header, records) = store.read().await?;
    Ok(FleetView::at(header.revision, records))
}

async fn drain(host: &Host, leave: Option<bool>) -> Result<(), ErrorReport> {
    let (store, name) = (host.store.open()?, &host.host);
    if !KeySpace::is_name(name) {
        return Err(ErrorReport::input(ErrorReport::new(format!(
            "`{name}` is not a valid host name; it may contain a-z, 0-9, '-', '.' and '_'"
        ))));
    }
    let view = view(&store).await?;
    let is_known = view.hosts.contains_key(name);
    // The drain of a host that is gone can be ended.
    let is_drained = view.drains.contains_key(name);
    if !is_known && !is_drained && !host.absent {
        return Err(ErrorReport::input(not_registered(&view, name)));
    }
    let key = FleetKey::Drain(name.clone());
    let write = match leave {
        Some(leave) => Write::put(key, Record::new(Drain { leave }).write()),
        None => Write::delete(key),
    };
    let done = store.transact(&Transaction { compares: Vec::new(), writes: vec![write] }, 0).await;
    if done == TransactionOutcome::Full {
        return Err(ErrorReport::new(FULL));
    }
    if done == TransactionOutcome::Unknown {
        return Err(ErrorReport::new(
            "the fleet's store does not answer, so it is unknown whether the change was written\nhint: \
                `plimsoll fleet status` shows whether it was",
        ));
    }
    let what = match leave {
        Some(true) => "is drained: it accepts no more models, and its idle models are unloaded",
        Some(false) => "is cordoned: it accepts no more models",
        None => "accepts models again",
    };
    let absent = if is_known { "" } else { " (it is not registered now)" };
    print(format!("{name} {what}{absent}\n"))
}

/// A name that no host of the fleet has, with those that hosts have.
fn not_registered(view: &FleetView, name: &str) -> ErrorReport {
    let known: Vec<&str> = view.hosts.keys().map(String::as_str).take(MOST_NAMED).collect();
    let more = if view.hosts.len() > known.len() { ", …" } else { "" };
    let known = if known.is_empty() { "none".to_owned() } else { format!("{}{more}", known.join(", ")) };
    ErrorReport::new(format!("no host `{name}` is registered in the fleet\nhint: registered: {known}"))
}

async fn until_empty(host: &Host) -> Result<(), ErrorReport> {
    let store = host.store.open()?;
    loop {
        let view = view(&store).await?;
        let life = view.host(&host.host).map(|host| host.incarnation.clone()).unwrap_or_default();
        if view.seats_on(&host.host, &life).next().is_none() {
            return print(format!("{} holds no models any more and can be stopped\n", host.host));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn move_seat(store: &Etcd, model: &str, host: &str) -> Result<(), ErrorReport> {
    let mut is_unknown = false;
    for attempt in 0..MOVE_TRIES {
        let view = view(store).await?;
        if view.seat(model).is_some_and(|seat| seat.record.body.host == host) {
            return print(format!("{model} is now assigned to {host}\n"));
        }
        let purpose = SeatPurpose::Moved;
        let demand =
            SeatDemand { model, only: Some(host), near: None, purpose, occupied: Bytes::ZERO, random: 0 };
        if view.host(host).is_none() {
            return Err(ErrorReport::input(not_registered(&view, host)));
        }
        let plan = place(&view, &demand).map_err(|reason| ErrorReport::new(reason.to_string()))?;
        let nonce = format!("move-{}-{attempt}", std::process::id());
        let claim = Claim::new(&view, model, plan, nonce);
        let claim = claim.ok_or_else(|| {
            ErrorReport::new(
                "a later version of plimsoll assigned the model, \
            and this one cannot read its record; update plimsoll here",
            )
        })?;
        is_unknown = match store.transact(&claim.transaction, 0).await {
            TransactionOutcome::Full => return Err(ErrorReport::new(FULL)),
            // The next reading shows it.
            TransactionOutcome::Unknown => true,
            TransactionOutcome::Applied(_) | TransactionOutcome::Conflict => false,
        };
    }
    Err(ErrorReport::new(if is_unknown {
        format!("the store did not answer {MOVE_TRIES} times; it is unknown which host has {model}")
    } else {
        format!("{model} was assigned to other hosts {MOVE_TRIES} times during the move; try again")
    }))
}

fn drained(view: &FleetView, host: &str) -> Option<&'static str> {
    let drain = view.drains.get(host)?;
    Some(if drain.record.body.leave { "drains" } else { "cordoned" })
}

/// The files that the host copies from another one.
fn copying<'a>(view: &'a FleetView, host: &str) -> Option<&'a RunningCopy> {
    view.copies.get(host)?.record.body.running.as_ref()
}

fn as_json(view: &FleetView) -> Value {
    let hosts = view.hosts.iter().map(|(name, host)| {
        let host = &host.record.body;
        let seats = view.seats_on(name, &host.incarnation);
        let models: Vec<Value> = seats
            .map(|(model, token, seat)| json!({ "model": model, "token": token, "need": seat.need }))
            .collect();
        json!({
            "name": name, "address": host.address, "version": host.version, "capacity": host.capacity,
            "unseated": host.unseated, "drain": drained(view, name), "models": models,
            "copies": copying(view, name),
        })
    });
    json!({ "schema": "plimsoll.fleet/1", "revision": view.revision, "hosts": hosts.collect::<Vec<_>>() })
}

fn in_words(view: &FleetView) -> String {
    let mut text = String::new();
    // Every host writes its own records.
    let mut say = |line: &str| text += &format!("{}\n", one_line(line));
    if view.hosts.is_empty() {
        say("no host is registered");
    }
    for (name, host) in &view.hosts {
        let host = &host.record.body;
        let seats: Vec<_> = view.seats_on(name, &host.incarnation).collect();
        let taken: Bytes = seats.iter().map(|(_, _, seat)| seat.need).sum();
        let drained = drained(view, name).map(|word| format!(", {word}")).unwrap_or_default();
        let line = format!(
            "{name} at {}: {taken} of {} assigned to models{drained} (plimsoll {})",
            host.address, host.capacity, host.version
        );
        say(&line);
        for (model, token, seat) in seats {
            say(&format!("  {model}: {} (assignment {token})", seat.need));
        }
        if let Some(copy) = copying(view, name) {
            say(&format!("  {}: its files come from {}, {} %", copy.model, copy.from, copy.percent));
        }
    }
    text
}
