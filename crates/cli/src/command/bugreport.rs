//! `plimsoll bugreport`: packs what a report of a bug needs into one archive, without secrets.
//!
//! Without `--yes` nothing is written: the files are listed, and `--show` prints one of them.

mod redact;

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use plimsoll_base::{Bytes, Card, may_name_secret};
use plimsoll_config::{Configuration, KeySecret};
use serde_json::{Value, json};

use self::redact::Redactor;
use super::engine;
use super::server_verbs::ServerAddress;
use crate::report::{ErrorReport, print};

/// The longest configuration that is read.
const LONGEST_CONFIG: Bytes = Bytes::mib(1);
/// Bytes and lines of each log that are taken, from its end.
const LOG_END: u64 = 256 << 10;
const LOG_LINES: usize = 300;

const MORE: &str = "\
Examples: plimsoll bugreport plimsoll.toml
          plimsoll bugreport plimsoll.toml --show status.json
          plimsoll bugreport plimsoll.toml --yes --output report.tar.gz

Keys, tokens, passwords and credentials in addresses are replaced by [redacted], and home folders by ~. Key files are not \
read. Look at each file before you pass the archive on: log lines may hold what only you know to be a secret.

Exit status: 0 for success, 1 if the archive cannot be written, 2 for bad input.";

#[derive(Debug, Args)]
#[command(after_help = MORE)]
pub(crate) struct Arguments {
    /// Configuration of the server
    config: Option<PathBuf>,
    /// Print this file of the archive, and write nothing
    #[arg(long, value_name = "NAME", conflicts_with = "yes")]
    show: Option<String>,
    /// Write the archive; without this option, its files are only listed
    #[arg(long)]
    yes: bool,
    /// The archive, which must not exist
    #[arg(short, long, value_name = "FILE", default_value = "plimsoll-bugreport.tar.gz")]
    output: PathBuf,
    /// Further log file, whose end is included; repeatable
    #[arg(long, value_name = "FILE")]
    log: Vec<PathBuf>,
    #[command(flatten)]
    server: ServerAddress,
}

/// Name and text of a file of the archive.
type ReportFile = (String, String);

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    let files = collect(arguments)?;
    if let Some(name) = &arguments.show {
        let Some((_, text)) = files.iter().find(|(own, _)| own == name) else {
            let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
            let text = format!("the archive has no file `{name}`; it has {}", names.join(", "));
            return Err(ErrorReport::input(ErrorReport::new(text)));
        };
        print(text.clone())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text: String =
        files.iter().map(|(name, text)| format!("{:>9} bytes  {name}\n", text.len())).collect();
    if arguments.yes {
        write(&arguments.output, &files)
            .map_err(ErrorReport::of_file("cannot write the archive", &arguments.output))?;
        text += &format!("written: {}\n", arguments.output.display());
    } else {
        text += &format!(
            "nothing is written yet: `--show NAME` prints one of these files, and `--yes` writes {}\n",
            arguments.output.display()
        );
    }
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

/// All files, redacted.
fn collect(arguments: &Arguments) -> Result<Vec<ReportFile>, ErrorReport> {
    let config = arguments.config.as_deref().map(read_config).transpose()?;
    let parsed = config.as_ref().and_then(|(name, text)| {
        plimsoll_config::parse_each(name, text, &|name| std::env::var(name).ok()).ok()
    });
    let redactor = redactor(arguments, parsed.as_ref());
    let mut files = vec![
        ("versions.json".to_owned(), pretty(&versions())),
        ("cards.json".to_owned(), pretty(&cards())),
        ("engines.json".to_owned(), pretty(&engine::found()?)),
    ];
    let asked = |path: &str| arguments.server.fetch(path).unwrap_or_else(|error| error.to_string());
    files.push(("status.json".to_owned(), asked("/api/status")));
    files.push(("engines.log".to_owned(), last_lines(&asked("/logs"))));
    if let Some((name, text)) = config {
        let ending = Path::new(&name).extension().map_or("txt".into(), |ending| ending.to_string_lossy());
        files.push((format!("configuration.{ending}"), text));
    }
    let own = parsed.as_ref().and_then(|parsed| parsed.serve.log_file.clone());
    for (number, path) in own.iter().chain(&arguments.log).enumerate() {
        let text = end_of(path).unwrap_or_else(|error| format!("cannot read {}: {error}", path.display()));
        files.push((format!("log-{}.txt", number + 1), last_lines(&text)));
    }
    for (_, text) in &mut files {
        *text = redactor.redact(text);
    }
    Ok(files)
}

fn read_config(path: &Path) -> Result<ReportFile, ErrorReport> {
    let text = plimsoll_file::read_text(path, LONGEST_CONFIG)
        .map_err(ErrorReport::of_file("cannot read the configuration", path))
        .map_err(ErrorReport::input)?;
    Ok((path.to_string_lossy().into_owned(), text))
}

/// With all secrets that are known here by name.
fn redactor(arguments: &Arguments, config: Option<&Configuration>) -> Redactor {
    let mut secrets: Vec<String> = std::env::vars_os()
        .filter_map(|(name, value)| may_name_secret(name.to_str()?).then(|| value.into_string().ok())?)
        .collect();
    secrets.extend(arguments.server.api_key.clone());
    for model in config.iter().flat_map(|config| &config.models) {
        let env = model.env.iter().filter(|(name, _)| may_name_secret(name));
        secrets.extend(env.map(|(_, value)| value.clone()));
        let options = model.launch.options();
        let flags = ["--api-key", "--hf-token"].into_iter();
        secrets.extend(flags.filter_map(|flag| options?.text(flag)).map(str::to_owned));
    }
    secrets.extend(config.iter().flat_map(|config| &config.serve.api_keys).cloned());
    for key in config.iter().flat_map(|config| &config.serve.keys) {
        if let KeySecret::Text(text) = &key.secret {
            secrets.push(text.clone());
        }
    }
    secrets.extend(config.and_then(|config| config.serve.webhook.clone()));
    Redactor::new(secrets, std::env::var("HOME").ok())
}

fn versions() -> Value {
    let read = |path: &str| plimsoll_file::read_text(Path::new(path), Bytes::mib(1)).ok();
    let line = |path: &str| {
        let text = read(path)?;
        text.lines().find(|line| !line.is_empty()).map(str::to_owned)
    };
    let system = read("/etc/os-release");
    let system =
        system.iter().flat_map(|text| text.lines()).find_map(|line| line.strip_prefix("PRETTY_NAME="));
    json!({
        "plimsoll": env!("CARGO_PKG_VERSION"), "architecture": std::env::consts::ARCH,
        "kernel": line("/proc/version"), "system": system.map(|name| name.trim_matches('"')),
        "nvidia": line("/proc/driver/nvidia/version"),
    })
}

fn cards() -> Value {
    let machine = plimsoll_cards::look();
    let card = |card: &Card| {
        json!({
            "name": card.name, "total": card.total, "free": card.free, "shares_host": card.shares_host,
            "compute_capability": card.compute_capability,
        })
    };
    json!({
        "cards": machine.cards.iter().map(card).collect::<Vec<_>>(),
        "kernel_cards": machine.kernel_cards.iter().filter_map(plimsoll_cards::KernelCard::shown)
            .map(|it| card(&it)).collect::<Vec<_>>(),
        "host": machine.host.as_ref().map(card), "notes": machine.notes,
    })
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// The end of a log.
fn end_of(path: &Path) -> io::Result<String> {
    let mut file = plimsoll_file::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_END)))?;
    let mut bytes = Vec::new();
    file.take(LOG_END).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].iter().map(|line| format!("{line}\n")).collect()
}

/// Writes a new archive that only its owner may read.
fn write(path: &Path, files: &[ReportFile]) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len().try_into().unwrap_or(u64::MAX));
        header.set_mode(0o600);
        archive.append_data(&mut header, format!("plimsoll-bugreport/{name}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()?.sync_all()
}
