//! Signs the checksums with minisign, and reads the public keys that installations accept.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::VERSION;

#[derive(Debug, thiserror::Error)]
pub(super) enum SignatureError {
    #[error("cannot read the public keys in {}: {error}\nhint: docs/install.md has the command that makes them", path.display())]
    Keys { path: PathBuf, error: io::Error },
    #[error("{} has no public key of minisign", .0.display())]
    NoKey(PathBuf),
    #[error("cannot run minisign: {0}\nhint: install it by that name")]
    Start(io::Error),
    #[error("minisign did not sign {}: {stated}", path.display())]
    Failed { path: PathBuf, stated: String },
    #[error("{} was signed by none of the public keys", .0.display())]
    OtherKey(PathBuf),
}

/// Public keys of a file, one a line, without minisign's comments. Without a signature there need be none.
pub(super) fn public_keys(path: &Path, are_needed: bool) -> Result<Vec<String>, SignatureError> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !are_needed => return Ok(Vec::new()),
        text => text.map_err(|error| SignatureError::Keys { path: path.to_owned(), error })?,
    };
    let is_key = |line: &&str| line.len() == 56 && line.starts_with("RW");
    let keys: Vec<String> = text.lines().map(str::trim).filter(is_key).map(str::to_owned).collect();
    if keys.is_empty() { Err(SignatureError::NoKey(path.to_owned())) } else { Ok(keys) }
}

/// Writes `FILE.minisig`, and checks it with the keys. A password is asked for at the terminal.
///
/// DECISION: the format without a hash before the signature (`-l`), because openssl verifies it alone.
pub(super) fn sign(path: &Path, secret: &Path, keys: &[String]) -> Result<(), SignatureError> {
    let comment = format!("plimsoll {VERSION}");
    let signed = minisign(&["-S", "-l", "-t", &comment, "-s"]).arg(secret).arg("-m").arg(path).output();
    let signed = signed.map_err(SignatureError::Start)?;
    if !signed.status.success() {
        let stated = String::from_utf8_lossy(&signed.stderr).trim_end().to_owned();
        return Err(SignatureError::Failed { path: path.to_owned(), stated });
    }
    let is_valid = |key: &String| {
        let verified = minisign(&["-V", "-q", "-P", key, "-m"]).arg(path).output();
        verified.is_ok_and(|output| output.status.success())
    };
    if keys.iter().any(is_valid) { Ok(()) } else { Err(SignatureError::OtherKey(path.to_owned())) }
}

fn minisign(words: &[&str]) -> Command {
    let mut minisign = Command::new("minisign");
    minisign.args(words).stdin(Stdio::inherit());
    minisign
}
