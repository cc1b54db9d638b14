//! Writes a program outside of the workspace that plans a model with the packaged crates.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

/// As a reader of the README would write it.
const PROGRAM: &str = include_str!("outside/main.rs");
const IMPORTED: &[&str] = &["plimsoll-model", "plimsoll-plan"];

#[derive(Debug, thiserror::Error)]
pub(super) enum UnpackError {
    #[error("cannot unpack {}: {error}", path.display())]
    Unpack { path: PathBuf, error: io::Error },
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
}

/// The file of a package, which all have the workspace's version.
pub(super) fn package(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}-{}.crate", env!("CARGO_PKG_VERSION")))
}

/// Unpacks the packages and writes the program beside them. Returns its folder.
pub(super) fn write(root: &Path, packages: &[(String, PathBuf)]) -> Result<PathBuf, UnpackError> {
    // Below `target`, so that a further run builds no dependency again.
    let place = root.join("target/outside");
    let sources = place.join("packages");
    let _ = fs::remove_dir_all(&sources);
    for (_, path) in packages {
        let unpack = File::open(path).and_then(|file| {
            let mut archive = tar::Archive::new(GzDecoder::new(file));
            // All packages have the same times, by which cargo would take new files for known ones.
            archive.set_preserve_mtime(false);
            archive.unpack(&sources)
        });
        unpack.map_err(|error| UnpackError::Unpack { path: path.clone(), error })?;
    }
    let put = |path: PathBuf, text: &[u8]| {
        let written =
            fs::create_dir_all(path.parent().unwrap_or(&place)).and_then(|()| fs::write(&path, text));
        written.map_err(|error| UnpackError::Write { path, error })
    };
    put(place.join("src/main.rs"), PROGRAM.as_bytes())?;
    put(place.join("Cargo.toml"), manifest(packages).as_bytes())?;
    // The versions that this machine has fetched already.
    let lock = root.join("Cargo.lock");
    let lock = fs::read(&lock).map_err(|error| UnpackError::Unpack { path: lock, error })?;
    put(place.join("Cargo.lock"), &lock)?;
    Ok(place)
}

/// A workspace of its own, whose dependencies are the packages in place of crates.io's.
fn manifest(packages: &[(String, PathBuf)]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let imports: String = IMPORTED.iter().map(|name| format!("{name} = \"{version}\"\n")).collect();
    let patch =
        |(name, _): &(String, PathBuf)| format!("{name} = {{ path = \"packages/{name}-{version}\" }}\n");
    let patches: String = packages.iter().map(patch).collect();
    format!(
        "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
            [dependencies]\n{imports}\n[patch.crates-io]\n{patches}"
    )
}
