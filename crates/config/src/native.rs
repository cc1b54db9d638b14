//! Reader of Plimsoll's own TOML configuration, the only format with every setting.
//!
//! The structs in `document` define the format; the JSON schema for editors is generated from them. An
//! unknown key is an error that names its line.

mod change;
mod document;
mod groups;
mod lines;
mod model;
mod reader;
mod spill;

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_base::{Card, Order};
use plimsoll_flags::quoted;
use schemars::Schema;
use schemars::transform::{RecursiveTransform, Transform};
use serde_json::Value;
use toml::Spanned;

pub use self::change::{ChangeFlagsError, WrittenFlags};
use self::document::{ConfigDocument, KeyTable};
use self::lines::LineIndex;
pub(super) use self::lines::of_idle;
use self::model::{entry, words};
use self::reader::ReadDocument;
use super::failure::{ConfigError, ConfigProblem};
use super::key::{ConfiguredKey, KeyRight, KeySecret};
use super::roster::{Configuration, ConfiguredModel};
use super::serve_settings::ServeSettings;
use super::serve_values::{cards, web_origin};

/// The JSON schema of the format, as it is published.
///
/// DECISION: a text instead of a call of [`schema`], whose code takes 200 KB. A test holds that both are
/// equal.
pub const PUBLISHED_SCHEMA: &str = include_str!("../../../docs/reference/config.schema.json");

/// The JSON schema of the format, from the structs that read it.
pub fn schema() -> String {
    let mut schema = schemars::schema_for!(ConfigDocument);
    RecursiveTransform(join_lines).transform(&mut schema);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

/// Makes one line of each paragraph of a description.
fn join_lines(schema: &mut Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        let paragraphs: Vec<String> =
            text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect();
        *text = paragraphs.join("\n\n");
    }
}

/// Reads a file: what could be read of it, and the mistakes in the rest.
pub(super) fn parse(file: &Arc<str>, text: &str) -> (Configuration, Vec<ConfigError>) {
    let lines = LineIndex { file, text };
    let ReadDocument { mut document, mistakes: mut of_settings, is_torn } = ReadDocument::of(&lines);
    let is_damaged = !of_settings.is_empty();
    let mut mistakes = Vec::new();
    let serve = serve_settings(&lines, &document, &mut mistakes);
    let mut roster = Configuration { serve, ..Configuration::default() };
    let mut models: Vec<_> = std::mem::take(&mut document.models).into_iter().collect();
    // The map is sorted by name; users expect the list of models in the order of their file.
    models.order_by_key(|(name, _)| name.span().start);
    for (name, model) in models {
        let start = name.span().start;
        let origin = lines.origin(start);
        let end = text.get(start..).and_then(|rest| rest.find("\n[")).map_or(text.len(), |end| start + end);
        let (name, section) = (name.into_inner(), start..end);
        let own: Vec<_> = of_settings.extract_if(.., |mistake| mistake.is_of(&name, &section)).collect();
        let mut found = Vec::new();
        let entry = entry(&lines, name, model, origin, &mut roster.warnings, &mut found);
        // Without the setting that was left out, the others may seem wrong.
        if !own.is_empty() {
            found.retain(ConfigError::is_of_its_own_words);
        }
        let own = own.into_iter().map(|mistake| mistake.error);
        roster.add(entry, own.chain(found).collect());
    }
    for mistake in of_settings {
        match mistake.model().filter(|_| !is_torn) {
            // An entry that is no section at all.
            Some(name) => {
                let entry = ConfiguredModel::new(name.to_owned(), mistake.error.origin.clone());
                roster.add(entry, vec![mistake.error]);
            }
            None => mistakes.push(mistake.error),
        }
    }
    let mut of_groups = Vec::new();
    groups::apply(&lines, &document.groups, &document.serve.together, &mut roster, &mut of_groups);
    // Their members may be models that were left out.
    if !is_damaged {
        mistakes.append(&mut of_groups);
    }
    // The default may be a model, or an alias, that was left out.
    if is_damaged && roster.serve.default.as_ref().is_some_and(|default| !roster.has_model(default)) {
        roster.serve.default = None;
    }
    (roster, mistakes)
}

/// The settings of the server; mistakes are added to `found`.
fn serve_settings(
    lines: &LineIndex<'_>,
    document: &ConfigDocument,
    found: &mut Vec<ConfigError>,
) -> ServeSettings {
    let serve = &document.serve;
    for key in &serve.api_keys {
        // An unset variable in a template leaves `""`, which would switch the check for keys off.
        let read = if key.get_ref().trim().is_empty() {
            Err(ConfigProblem::BlankKey { key: "api-keys" })
        } else {
            KeySecret::read(key.get_ref()).map(drop).map_err(ConfigProblem::Parse)
        };
        found.extend(read.err().map(|problem| ConfigError::new(lines.origin(key.span().start), problem)));
    }
    let engine = document.engine.command.as_ref().and_then(|command| words(lines, command, found));
    ServeSettings {
        listen: serve.listen.clone(),
        default: serve.default.clone(),
        strict_names: serve.strict_names,
        autoload: serve.autoload,
        api_keys: serve.api_keys.iter().map(|key| key.get_ref().clone()).collect(),
        api_key_files: serve.api_key_files.clone(),
        keys: named_keys(lines, &document.keys, found),
        models_max: serve.models_max,
        patience: serve.patience.map(Into::into),
        wait: serve.wait.map(Into::into),
        heartbeat: serve.heartbeat.map(Into::into),
        engine,
        open: serve.open,
        cards: each(lines, &serve.cards, cards, |one, other| is_repeated(one, other), found)
            .into_iter()
            .flatten()
            .collect(),
        reserve: serve.reserve.as_ref().map(|size| size.0),
        yield_below: serve.yield_below.as_ref().map(|size| size.0),
        yield_to: serve.yield_to.clone(),
        warm: serve.warm.as_ref().map(|size| size.0),
        downloads: serve.downloads.as_ref().map(|folder| folder.0.clone()),
        log_file: serve.log_file.as_ref().map(|file| file.0.clone()),
        guard: serve.guard,
        ask: serve.ask.as_ref().map(|time| time.0),
        allow_origins: each(lines, &serve.allow_origins, web_origin, String::eq, found),
        reclaim_before_load: serve.reclaim_before_load,
        engine_ports: serve.engine_ports,
        engine_user: serve.engine_user.clone(),
        pass_env: serve.pass_env.clone(),
        webhook: serve.webhook.clone(),
        traces: serve.traces.clone(),
        log_level: serve.log_level,
        log_format: serve.log_format,
        fleet: document.fleet.store.clone(),
        fleet_store_ca: document.fleet.store_ca.clone(),
        fleet_store_certificate: document.fleet.store_certificate.clone(),
        fleet_store_certificate_key: document.fleet.store_certificate_key.clone(),
        fleet_store_user: document.fleet.store_user.clone(),
        fleet_store_password_file: document.fleet.store_password_file.clone(),
        fleet_host: document.fleet.host.clone(),
        fleet_address: document.fleet.address.clone(),
        fleet_key_file: document.fleet.key_file.clone(),
        fleet_listen: document.fleet.listen,
        fleet_identity: document.fleet.identity.clone(),
        fleet_watchers: document.fleet.watchers,
        fleet_share_files: document.fleet.share_files,
        fleet_share_bandwidth: document.fleet.share_bandwidth.map(Into::into),
    }
}

fn named_keys(
    lines: &LineIndex<'_>,
    tables: &BTreeMap<Spanned<String>, KeyTable>,
    found: &mut Vec<ConfigError>,
) -> Vec<ConfiguredKey> {
    let read = |(name, table): (&Spanned<String>, &KeyTable)| {
        let fail = |why| ConfigError::new(lines.origin(name.span().start), ConfigProblem::Parse(why));
        let secret = table.key.as_ref().ok_or_else(|| {
            "the section has no `key`; add the API key, or `sha256:` and its digest".to_owned()
        });
        let secret = secret.and_then(|text| {
            if text.get_ref().trim().is_empty() {
                Err("`key` is empty, which would admit requests without a key; write the key".to_owned())
            } else {
                KeySecret::read(text.get_ref())
            }
        });
        let secret = secret.map_err(|why| found.push(fail(why))).ok()?;
        Some(ConfiguredKey {
            name: name.get_ref().clone(),
            secret,
            models: table.models.clone(),
            rights: table.rights.clone().unwrap_or_else(|| vec![KeyRight::Use]),
            requests_per_minute: table.requests_per_minute,
            tokens_per_minute: table.tokens_per_minute,
            concurrency: table.concurrency,
            priority: table.priority,
            expires: table.expires.map(|time| time.0),
        })
    };
    tables.iter().filter_map(read).collect()
}

/// True if a description of cards names one that an earlier one has.
fn is_repeated(one: &[Card], other: &[Card]) -> bool {
    one.iter().any(|card| other.iter().any(|before| before.id == card.id))
}

/// Reads each text of a list; a text that cannot be read, or that says the same as another one, is a mistake
/// with its line.
fn each<T>(
    lines: &LineIndex<'_>,
    texts: &[Spanned<String>],
    read: impl Fn(&str) -> Result<T, String>,
    same: impl Fn(&T, &T) -> bool,
    found: &mut Vec<ConfigError>,
) -> Vec<T> {
    let mut all: Vec<T> = Vec::with_capacity(texts.len());
    for text in texts {
        let one = read(text.get_ref()).and_then(|one| {
            if all.iter().any(|other| same(other, &one)) {
                Err(format!("`{}` repeats an earlier entry; keep one of the two", quoted(text.get_ref())))
            } else {
                Ok(one)
            }
        });
        let fail = |why| ConfigError::new(lines.origin(text.span().start), ConfigProblem::Parse(why));
        match one {
            Ok(one) => all.push(one),
            Err(why) => found.push(fail(why)),
        }
    }
    all
}
