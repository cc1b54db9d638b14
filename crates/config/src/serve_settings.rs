//! Merges the settings of `plimsoll serve` from the command line with those from `[serve]` in a file.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_base::{Bytes, Card};

use super::before_load::ReclaimBeforeLoad;
use super::guard::GuardSettings;
use super::key::ConfiguredKey;
use super::log::{LogFormat, LogLevel};

/// Defines the settings, and what treats all of them alike, from one list.
macro_rules! serve_settings {
    ($($(#[$doc:meta])* $field:ident: $kind:ty,)*) => {
        /// Settings of the server itself; a setting that is not given is `None`, false or empty.
        #[derive(Clone, Default, PartialEq, Eq)]
        pub struct ServeSettings { $($(#[$doc])* pub $field: $kind,)* }

        impl ServeSettings {
            /// These settings, with those of `file` where none is given.
            #[must_use]
            pub fn or(self, file: &Self) -> Self {
                let guard = self.guard.or(&file.guard);
                Self { guard, ..Self { $($field: given_or(self.$field, &file.$field),)* } }
            }

            /// The keys that differ from those of the server's start and that only a restart applies, each
            /// with its section of a TOML file.
            pub fn differ_since(&self, start: &Self) -> Vec<String> {
                let differ = [$((stringify!($field), self.$field != start.$field),)*];
                // A reload applies these.
                let restart = |name: &&str| {
                    !matches!(*name, "api_keys" | "api_key_files" | "keys" | "default" | "strict_names" | "autoload")
                };
                let names = differ.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name);
                names.filter(restart).map(key_in_its_section).collect()
            }
        }

        impl fmt::Debug for ServeSettings {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut text = f.debug_struct("ServeSettings");
                $(match stringify!($field) {
                    // Never the keys themselves: this output ends up in logs and bug reports.
                    "api_keys" => text.field("api_keys", &self.api_keys.len()),
                    // Their paths are often secrets.
                    "webhook" => text.field("webhook", &self.webhook.is_some()),
                    "traces" => text.field("traces", &self.traces.is_some()),
                    name => text.field(name, &self.$field),
                };)*
                text.finish()
            }
        }
    };
}

serve_settings! {
    /// Addresses to listen on; empty for the usual one.
    listen: Vec<SocketAddr>,
    /// The model that answers requests that name none.
    default: Option<String>,
    /// A request for an unknown model is refused, even if only one model is configured.
    strict_names: bool,
    /// False: a request does not load its model, unless it has `?autoload=true`.
    autoload: Option<bool>,
    /// Other machines may use it without a key.
    open: bool,
    api_keys: Vec<String>,
    /// Files with one API key per line.
    api_key_files: Vec<String>,
    /// API keys with rights and limits.
    keys: Vec<ConfiguredKey>,
    /// The most models that are loaded at a time; 0 or none if memory alone limits them.
    models_max: Option<usize>,
    /// Time that a warm model may keep a queued one waiting before it drains.
    patience: Option<Duration>,
    /// Longest wait of a request in the queue.
    wait: Option<Duration>,
    /// Time between two comments of a stream that waits for its model; zero for none.
    heartbeat: Option<Duration>,
    /// The program for models that give only flags, with leading arguments if it takes any.
    engine: Option<Vec<String>>,
    /// Budgets on cards and descriptions of cards; empty means all cards of the machine.
    cards: Vec<Card>,
    /// Memory to leave free on each card.
    reserve: Option<Bytes>,
    /// Free memory of a card below which idle models leave for other processes.
    yield_below: Option<Bytes>,
    /// Programs for which idle models leave when they begin to use a card.
    yield_to: Vec<String>,
    /// Bound of the folder of saved slots; zero or none for no saving.
    warm: Option<Bytes>,
    /// Folder of downloaded models; without one, models are not downloaded.
    downloads: Option<PathBuf>,
    /// File for the output of the engines.
    log_file: Option<PathBuf>,
    /// Guard's settings for models that have none of their own.
    guard: GuardSettings,
    /// Time that guarded processes get to release idle memory.
    ask: Option<Duration>,
    /// Reclaim before a load, where the GPU shares the host's memory.
    reclaim_before_load: Option<ReclaimBeforeLoad>,
    /// Origins of web pages that may use the server, in addition to those of this machine; `*` for all.
    allow_origins: Vec<String>,
    /// Engines listen on ports, also those that could use a Unix socket.
    engine_ports: bool,
    /// The user that engines run as, by name or number.
    engine_user: Option<String>,
    /// Variables that engines inherit beside the usual ones; `NAME` or `BEGINNING*`.
    pass_env: Vec<String>,
    /// Address that gets each failure as JSON.
    webhook: Option<String>,
    /// Collector of traces (OTLP).
    traces: Option<String>,
    log_level: Option<LogLevel>,
    log_format: Option<LogFormat>,
    /// The store of the fleet that this host belongs to, `etcd://…`.
    fleet: Option<String>,
    /// Certificates of the store's authorities, for a store over TLS.
    fleet_store_ca: Option<PathBuf>,
    /// Certificate that this host shows to the store.
    fleet_store_certificate: Option<PathBuf>,
    fleet_store_certificate_key: Option<PathBuf>,
    /// User of the store.
    fleet_store_user: Option<String>,
    fleet_store_password_file: Option<PathBuf>,
    /// This host's name in the fleet.
    fleet_host: Option<String>,
    /// `ADDRESS:PORT` at which other hosts reach this one.
    fleet_address: Option<String>,
    /// File with the key that the fleet's hosts share.
    fleet_key_file: Option<PathBuf>,
    /// Address of the port for other hosts.
    fleet_listen: Option<SocketAddr>,
    /// Folder with the certificate that this host shows to others.
    fleet_identity: Option<PathBuf>,
    /// Hosts of the fleet up to which all watch its store.
    fleet_watchers: Option<usize>,
    /// Model files are copied from other hosts of the fleet, and given to them.
    fleet_share_files: bool,
    /// Bytes a second that are copied, and that are given.
    fleet_share_bandwidth: Option<Bytes>,
}

fn key_in_its_section(field: &str) -> String {
    let (key, section) = match field.strip_prefix("fleet_") {
        Some(key) => (key, "fleet"),
        None if field == "fleet" => ("store", "fleet"),
        None if field == "engine" => ("command", "engine"),
        None => (field, "serve"),
    };
    format!("`{}` under [{section}]", key.replace('_', "-"))
}

fn given_or<T: Clone + Default + PartialEq>(given: T, file: &T) -> T {
    if given == T::default() { file.clone() } else { given }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_wins_over_the_file_setting_by_setting() {
        let file = ServeSettings {
            listen: vec![([127, 0, 0, 1], 1).into()],
            cards: vec!["name=a,total=1GiB".parse().unwrap()],
            guard: GuardSettings::read("budget reuse").unwrap(),
            ..ServeSettings::default()
        };
        let line = ServeSettings {
            listen: vec![([127, 0, 0, 1], 2).into()],
            open: true,
            guard: GuardSettings::read("observe").unwrap(),
            ..ServeSettings::default()
        };
        let both = line.clone().or(&file);
        assert_eq!((both.listen, both.open, &both.cards), (line.listen, true, &file.cards));
        assert_eq!(Some(both.guard), GuardSettings::read("observe reuse"));
        assert_eq!(ServeSettings::default().or(&file), file);
    }

    #[test]
    fn a_setting_that_only_a_restart_applies_is_named_by_its_key() {
        let start = ServeSettings::default();
        let now = ServeSettings {
            log_file: Some("a".into()),
            api_keys: vec!["secret".to_owned()],
            ask: Some(Duration::ZERO),
            engine: Some(vec!["llama-server".to_owned()]),
            fleet: Some("etcd://a".to_owned()),
            fleet_key_file: Some("key".into()),
            ..ServeSettings::default()
        };
        let named = [
            "`command` under [engine]",
            "`log-file` under [serve]",
            "`ask` under [serve]",
            "`store` under [fleet]",
            "`key-file` under [fleet]",
        ];
        assert_eq!(now.differ_since(&start), named);
        assert!(!format!("{now:?}").contains("secret"));
    }
}
