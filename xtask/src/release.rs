//! `cargo xtask release`: builds packages of the program, its libraries and its documents.
//!
//! DECISION: small crates for the containers (`tar`, `ar`, `flate2`) instead of debhelper and buildah. Every
//! byte then follows from the sources, the compiler and one date, so the packages can be rebuilt anywhere.
//! The date is `SOURCE_DATE_EPOCH`, or else the time of the last commit.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod build;
mod contents;
mod deb;
mod libraries;
mod oci;
mod options;
mod recipes;
mod sbom;
mod signature;
mod system;
mod tree;
mod trial;
mod wheel;
mod zip;

#[cfg(test)]
mod tests;

use build::{BuildError, Programs};
use contents::ContentsError;
use libraries::LibraryError;
use options::Architecture;
pub(crate) use options::Options;
use recipes::RecipeError;
use sbom::SbomError;
use signature::SignatureError;
use trial::TrialError;

/// Version of all packages: that of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, thiserror::Error)]
enum ReleaseError {
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Contents(#[from] ContentsError),
    #[error(transparent)]
    Libraries(#[from] LibraryError),
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    #[error(transparent)]
    Sbom(#[from] SbomError),
    #[error(transparent)]
    Signature(#[from] SignatureError),
    #[error(transparent)]
    Trial(#[from] TrialError),
    #[error("cannot pack {name}: {error}")]
    Pack { name: String, error: io::Error },
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
}

pub(crate) fn run(root: &Path, options: &Options) -> ExitCode {
    let released = release(root, options).and_then(|sums| match options.trial {
        true => Ok(sums + &trial::run(&options.folder(root))?),
        false => Ok(sums),
    });
    match released {
        Ok(stated) => {
            print!("{stated}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("release: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Builds and packs everything; the lines of `SHA256SUMS`.
fn release(root: &Path, options: &Options) -> Result<String, ReleaseError> {
    let programs = match &options.from {
        Some(folder) => Programs::in_folder(folder),
        None => build::programs(root, &crate::guard::target(root), options.architecture)?,
    };
    packages(root, options, &programs, build::date(root)?)
}

fn packages(root: &Path, options: &Options, programs: &Programs, date: u64) -> Result<String, ReleaseError> {
    let architecture = options.architecture;
    let sbom = sbom::of(root, architecture)?;
    let tree = contents::tree(root, programs, &sbom)?;
    let python = contents::python(root, programs)?;
    let libraries = libraries::needed(&programs.program, architecture)?;
    let pack = |name: &str| {
        let name = name.to_owned();
        move |error| ReleaseError::Pack { name, error }
    };
    let stem = format!("plimsoll-{VERSION}-linux-{architecture}");
    let keys = signature::public_keys(&root.join(&options.public), options.sign.is_some())?;
    let floor = crate::artifacts::newest_glibc(&programs.program);
    let archive = contents::archive(&tree).compressed(date).map_err(pack("the archive"))?;
    let files = [
        (
            format!("plimsoll_{VERSION}_{architecture}.deb"),
            deb::package(root, &tree, architecture, floor, date),
        ),
        (format!("{stem}.tar.gz"), Ok(archive)),
        (wheel::name(architecture, floor), wheel::package(root, (&tree, python), architecture, floor)),
        (format!("{stem}-oci.tar"), oci::image(&tree, &libraries, architecture, date)),
        (format!("{stem}.cdx.json"), Ok(sbom)),
    ];
    let write = |path: &Path| {
        let path = path.to_owned();
        move |error| ReleaseError::Write { path, error }
    };
    let out = options.folder(root);
    fs::create_dir_all(&out).map_err(write(&out))?;
    for (name, bytes) in files {
        let bytes = bytes.map_err(pack(&name))?;
        let path = out.join(&name);
        fs::write(&path, bytes).map_err(write(&path))?;
    }
    recipes::write(root, &out, &recipes::values(&out, &keys, floor, options.repository.as_deref()))?;
    let path = out.join("SHA256SUMS");
    let sums = sums(&out).map_err(write(&path))?;
    fs::write(&path, &sums).map_err(write(&path))?;
    if let Some(secret) = &options.sign {
        signature::sign(&path, secret, &keys)?;
    }
    Ok(sums)
}

/// Writes the wheel of a program and libraries that are built already into `out`; its path.
pub(crate) fn wheel(
    root: &Path,
    (program, libraries): (&Path, &Path),
    out: &Path,
) -> Result<PathBuf, Box<dyn Error>> {
    let programs = Programs::in_folders(program, libraries);
    let architecture = Architecture::here();
    let tree = contents::tree(root, &programs, &sbom::of(root, architecture)?)?;
    let python = contents::python(root, &programs)?;
    let floor = crate::artifacts::newest_glibc(&programs.program);
    let path = out.join(wheel::name(architecture, floor));
    fs::write(&path, wheel::package(root, (&tree, python), architecture, floor)?)?;
    Ok(path)
}

/// A line for each package in the folder, those of an earlier run for another architecture included.
fn sums(folder: &Path) -> io::Result<String> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("plimsoll") || recipes::is_one(&name) {
            lines.push((name.clone(), sha256(&fs::read(folder.join(&name))?)));
        }
    }
    lines.sort();
    Ok(lines.into_iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect())
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
