//! Writes a configuration as Plimsoll's TOML, with a comment on where each entry comes from.

use std::fmt::Write;
use std::time::Duration;

use plimsoll_base::{Bytes, Card, CardKind};
use plimsoll_config::{
    CHECK, CommandKind, Configuration, ConfiguredModel, GuardSettings, Launch, PORT, RequestFilters,
};
use plimsoll_flags::Options;
use serde::Serialize;
use serde_json::{Map, Value};

/// A key, and its value in TOML if the setting is given.
type Key = (&'static str, Option<String>);

/// The text of a configuration, with a heading and a comment on each model.
pub fn write(
    heading: &str,
    configuration: &Configuration,
    comment: impl Fn(&ConfiguredModel) -> String,
) -> String {
    let mut out = format!("# {}\n", one_line(heading));
    serve(&mut out, configuration);
    groups(&mut out, &configuration.models);
    for entry in &configuration.models {
        let _ = writeln!(out, "\n[models.{}]  # {}", key(&entry.name), one_line(&comment(entry)));
        lines(&mut out, &model(entry));
    }
    out
}

fn serve(out: &mut String, Configuration { serve: settings, models, .. }: &Configuration) {
    let sets = models.first().and_then(|model| model.company.sets.as_ref());
    let cards: Vec<String> = settings.cards.iter().map(described).collect();
    let keys = [
        ("listen", given(&settings.listen.iter().map(ToString::to_string).collect::<Vec<_>>())),
        ("default", settings.default.as_ref().map(value)),
        ("strict-names", given(&settings.strict_names)),
        ("autoload", settings.autoload.as_ref().map(value)),
        ("open", given(&settings.open)),
        ("api-keys", given(&settings.api_keys)),
        ("api-key-files", given(&settings.api_key_files)),
        ("together", sets.map(|sets| value(&sets[..]))),
        ("models-max", settings.models_max.as_ref().map(value)),
        ("patience", settings.patience.map(time)),
        ("wait", settings.wait.map(time)),
        ("heartbeat", settings.heartbeat.map(time)),
        ("cards", given(&cards)),
        ("reserve", settings.reserve.map(size)),
        ("yield-below", settings.yield_below.map(size)),
        ("yield-to", given(&settings.yield_to)),
        ("warm", settings.warm.map(size)),
        ("downloads", settings.downloads.as_ref().map(|folder| value(&folder.to_string_lossy()))),
        ("webhook", settings.webhook.as_ref().map(value)),
        ("traces", settings.traces.as_ref().map(value)),
        ("log-file", settings.log_file.as_ref().map(|file| value(&file.to_string_lossy()))),
        ("log-level", settings.log_level.as_ref().map(value)),
        ("log-format", settings.log_format.as_ref().map(value)),
        ("guard", table(&settings.guard)),
        ("ask", settings.ask.map(time)),
        ("reclaim-before-load", settings.reclaim_before_load.as_ref().map(value)),
        ("allow-origins", given(&settings.allow_origins)),
        ("engine-ports", given(&settings.engine_ports)),
        ("engine-user", given(&settings.engine_user)),
        ("pass-env", given(&settings.pass_env)),
    ];
    if keys.iter().any(|(_, value)| value.is_some()) {
        out.push_str("\n[serve]\n");
        lines(out, &keys);
    }
    let path = |path: &std::path::PathBuf| value(&path.to_string_lossy());
    let keys = [
        ("store", settings.fleet.as_ref().map(value)),
        ("store-ca", settings.fleet_store_ca.as_ref().map(path)),
        ("store-certificate", settings.fleet_store_certificate.as_ref().map(path)),
        ("store-certificate-key", settings.fleet_store_certificate_key.as_ref().map(path)),
        ("store-user", settings.fleet_store_user.as_ref().map(value)),
        ("store-password-file", settings.fleet_store_password_file.as_ref().map(path)),
        ("host", settings.fleet_host.as_ref().map(value)),
        ("address", settings.fleet_address.as_ref().map(value)),
        ("listen", settings.fleet_listen.map(|listen| value(&listen.to_string()))),
        ("identity", settings.fleet_identity.as_ref().map(path)),
        ("key-file", settings.fleet_key_file.as_ref().map(path)),
        ("watchers", settings.fleet_watchers.map(|watchers| watchers.to_string())),
        ("share-files", given(&settings.fleet_share_files)),
        ("share-bandwidth", settings.fleet_share_bandwidth.map(size)),
    ];
    if keys.iter().any(|(_, value)| value.is_some()) {
        out.push_str("\n[fleet]\n");
        lines(out, &keys);
    }
    if let Some(command) = &settings.engine {
        let _ = write!(out, "\n[engine]\ncommand = {}\n", value(command));
    }
}

fn groups(out: &mut String, models: &[ConfiguredModel]) {
    let mut reported: Vec<&str> = Vec::new();
    for group in models.iter().filter_map(|model| model.company.group.as_ref()) {
        if reported.contains(&&*group.name) {
            continue;
        }
        reported.push(&group.name);
        let is_member =
            |model: &&ConfiguredModel| model.company.group.as_ref().is_some_and(|own| own.name == group.name);
        let members: Vec<&String> = models.iter().filter(is_member).map(|model| &model.name).collect();
        let _ = writeln!(out, "\n[groups.{}]", key(&group.name));
        let keys = [
            ("members", Some(value(&members))),
            ("swap", given(&group.swap)),
            ("exclusive", given(&group.exclusive)),
            ("persistent", given(&group.persistent)),
        ];
        lines(out, &keys);
    }
}

/// The filters as an inline table.
fn filters(filters: &RequestFilters) -> Option<String> {
    let map = |set: &Map<String, Value>| (!set.is_empty()).then(|| inline(&Value::Object(set.clone())));
    let by_name = filters.set_by_name.iter().map(|(name, set)| (name.clone(), Value::Object(set.clone())));
    let keys = [
        ("strip", given(&filters.strip)),
        ("default", map(&filters.default)),
        ("set", map(&filters.set)),
        ("set-by-name", map(&by_name.collect())),
        ("system", filters.system.as_ref().map(value)),
    ];
    let keys = keys.into_iter().filter_map(|(key, value)| Some(format!("{key} = {}", value?)));
    let keys: Vec<String> = keys.collect();
    (!keys.is_empty()).then(|| format!("{{ {} }}", keys.join(", ")))
}

/// A value of JSON in TOML, which has no null: such parts are left out.
fn inline(json: &Value) -> String {
    match json {
        Value::Object(map) => {
            let parts = map.iter().filter(|(_, value)| !value.is_null());
            let parts: Vec<String> =
                parts.map(|(name, value)| format!("{} = {}", key(name), inline(value))).collect();
            format!("{{ {} }}", parts.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().filter(|item| !item.is_null()).map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        other => value(other),
    }
}

fn model(model: &ConfiguredModel) -> Vec<Key> {
    let env =
        model.env.iter().map(|(name, text)| format!("{} = {}", key(name), value(text))).collect::<Vec<_>>();
    let mut keys = launch(&model.launch);
    keys.extend([
        ("kind", given(&model.kind)),
        ("name", model.title.as_ref().map(value)),
        ("description", model.description.as_ref().map(value)),
        ("filters", filters(&model.filters)),
        ("aliases", given(&model.aliases)),
        ("tags", given(&model.tags)),
        ("env", (!env.is_empty()).then(|| format!("{{ {} }}", env.join(", ")))),
        ("memory", model.memory.map(size)),
        ("cards", given(&model.cards)),
        ("ttl", model.ttl.map(time)),
        ("hold", model.hold.map(time)),
        ("priority", given(&model.priority)),
        ("pin", given(&model.pinned)),
        ("preload", given(&model.preload)),
        ("unlisted", given(&model.unlisted)),
        ("warm", (!model.warm).then(|| value(&false))),
        ("concurrency", given(&model.concurrency)),
        ("replicas", given(&model.replicas)),
        ("max-requests", given(&model.max_requests)),
        ("load-timeout", model.load_timeout.map(time)),
        ("stop-timeout", model.stop_timeout.map(time)),
        ("upstream-name", given(&model.upstream_name)),
        ("guard", table(&model.guard)),
        ("too-large", given(&model.too_large)),
        ("depth-admission", (!model.depth_admission).then(|| value(&false))),
    ]);
    keys
}

fn launch(launch: &Launch) -> Vec<Key> {
    match launch {
        Launch::LlamaServer { program, options } => {
            let mut rest = options.clone();
            // A second `--model` in the flags would win over the key.
            rest.retain(|setting| setting.flag.name() != "--model");
            vec![
                ("program", program.as_ref().map(|words| line_or_list(words))),
                ("model", options.text("--model").map(value)),
                ("flags", (!rest.is_empty()).then(|| flags(&rest))),
            ]
        }
        Launch::Command { argv, options: _, proxy, check, stop } => vec![
            ("cmd", Some(line_or_list(argv))),
            ("stop", stop.as_ref().map(|words| line_or_list(words))),
            ("proxy", (*proxy != format!("http://127.0.0.1:{PORT}")).then(|| value(proxy))),
            ("check", own_check(argv, check)),
        ],
    }
}

/// The path, unless it is that of the command's kind.
fn own_check(argv: &[String], check: &str) -> Option<String> {
    (check != CommandKind::of(argv).map_or(CHECK, CommandKind::check)).then(|| value(check))
}

/// Flags on one line if they come from one line, else each with its own.
fn flags(options: &Options) -> String {
    let [first, ..] = options.settings() else {
        return "[]".to_owned();
    };
    if options.settings().iter().all(|setting| setting.origin == first.origin) {
        return line_or_list(&options.to_argv());
    }
    let each = options.settings().iter().map(|setting| {
        let argv = Options::from_iter([setting.clone()]).to_argv();
        let words: Vec<String> = argv.iter().map(value).collect();
        format!("  {},  # {}\n", words.join(", "), one_line(&setting.origin.to_string()))
    });
    format!("[\n{}]", each.collect::<String>())
}

/// A command line as people write one, where no word needs quotation marks.
fn line_or_list(words: &[String]) -> String {
    let plain = |word: &String| {
        let is_plain = |c: char| c.is_alphanumeric() || "-_./:,=+@%${}".contains(c);
        !word.is_empty() && word.chars().all(is_plain)
    };
    if words.iter().all(plain) { value(&words.join(" ")) } else { value(words) }
}

fn table(settings: &GuardSettings) -> Option<String> {
    let keys = [
        ("mode", settings.mode.as_ref().map(value)),
        ("budget", settings.budget.map(size)),
        ("reuse", given(&settings.reuse)),
        ("chunk", settings.chunk.map(size)),
        ("reclaim", given(&settings.reclaim)),
        ("wait", settings.wait.map(|seconds| time(Duration::from_secs(seconds.into())))),
        ("spill", settings.spill.map(size)),
        ("need", settings.need.map(size)),
        ("keep", settings.keep.map(size)),
        ("pool", settings.pool.as_ref().map(value)),
        ("on-oom", settings.on_oom.as_ref().map(value)),
        ("hide-vmm", given(&settings.hide_vmm)),
        ("contexts", settings.contexts.map(|contexts| value(&format!("{contexts:?}").to_lowercase()))),
    ];
    let keys = keys.into_iter().filter_map(|(key, value)| Some(format!("{key} = {}", value?)));
    let keys: Vec<String> = keys.collect();
    (!keys.is_empty()).then(|| format!("{{ {} }}", keys.join(", ")))
}

/// A card as `--card` describes it.
fn described(card: &Card) -> String {
    let mut text = format!("name={},total={}B,free={}B", card.name, card.total.get(), card.free.get());
    let words = [
        card.uuid.as_ref().map(|uuid| format!(",uuid={uuid}")),
        card.compute_capability.map(|(major, minor)| format!(",cc={major}.{minor}")),
        (card.kind == CardKind::Host).then(|| ",kind=host".to_owned()),
        card.legacy_pool.then(|| ",pool=legacy".to_owned()),
    ];
    text.extend(words.into_iter().flatten());
    text
}

fn lines(out: &mut String, keys: &[Key]) {
    for (key, value) in keys {
        if let Some(value) = value {
            let _ = writeln!(out, "{key} = {value}");
        }
    }
}

/// A value that differs from the one of a setting that is not given.
fn given<T: Serialize + Default + PartialEq>(setting: &T) -> Option<String> {
    (*setting != T::default()).then(|| value(setting))
}

/// JSON's strings, lists, numbers and words are TOML's, but for one control character that JSON leaves as it
/// is.
fn value(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).unwrap_or_default().replace('\u{7f}', "\\u007F")
}

fn key(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !name.is_empty() && name.bytes().all(is_bare) { name.to_owned() } else { value(name) }
}

/// A text for a comment.
fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control(), " ")
}

fn time(time: Duration) -> String {
    let millis = time.as_millis();
    value(&if millis.is_multiple_of(1000) { format!("{}s", millis / 1000) } else { format!("{millis}ms") })
}

fn size(size: Bytes) -> String {
    let units = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1, "B")];
    let whole = units.iter().find(|(unit, _)| size.get().is_multiple_of(*unit) && size.get() >= *unit);
    let (unit, name) = whole.unwrap_or(&(1, "B"));
    value(&format!("{}{name}", size.get() / unit))
}
