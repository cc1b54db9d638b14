//! `cargo xtask gpu bundle`: packs everything that a measurement needs on a GPU machine without network and
//! cargo into one archive.
//!
//! DECISION: files from the repository keep their paths (`bench/gpu`, `data/exact`), next to built programs
//! (`bin`, `lib/plimsoll`) and downloaded ones (`engines`, `source`). So the same scripts run in a checkout
//! and on the GPU machine. The content is already compressed, so the archive is a plain tar, split into parts
//! if it is long. The GPU machine accepts a limited number of bytes, the checkout included; a bundle that
//! exceeds the limit is refused before it is written. `bench/gpu/run.py` implements `gpu run`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

mod manifest;
mod options;
mod source;

use manifest::{Entry, Manifest};
pub(crate) use options::Options;

/// Largest archive that a GPU machine takes, beside the source tree, which is copied anyway.
const LIMIT: u64 = 64 << 20;
/// A file of the archive, when it is divided.
const PART: u64 = 15 << 20;
const ARCHIVE: &str = "plimsoll-gpu.tar";
const PROGRAMS: [&str; 2] = ["plimsoll", "specimen"];
const LIBRARIES: [&str; 2] = ["libplimsoll_guard.so", "libplimsoll_phantom.so"];
/// The glibc of the GPU machines (Ubuntu 24.04), and the floor of what is preloaded into other programs.
const PROGRAM_FLOOR: (u32, u32) = (2, 39);
const LIBRARY_FLOOR: (u32, u32) = (2, 31);

#[derive(Debug, thiserror::Error)]
enum BundleError {
    #[error("cannot write below {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    #[error("cannot copy {}: {error}", path.display())]
    Copy { path: PathBuf, error: io::Error },
    #[error("cannot run {program}: {error}")]
    Start { program: String, error: io::Error },
    #[error("{program} failed; its output is above")]
    Run { program: String },
    #[error(transparent)]
    Manifest(#[from] manifest::ManifestError),
    #[error(transparent)]
    Source(#[from] source::SourceError),
    #[error("{} needs glibc {}.{}; the machine it is for has {}.{}", path.display(), needs.0, needs.1, floor.0, floor.1)]
    Glibc { path: PathBuf, needs: (u32, u32), floor: (u32, u32) },
    #[error(
        "{bundle} KiB of bundle and {tree} KiB of working tree are more than the {limit} KiB that travel\n{longest}hint: leave an engine \
         out (--source none), or give a smaller --engine-archive"
    )]
    TooLarge { bundle: u64, tree: u64, limit: u64, longest: String },
}

pub(crate) fn run(root: &Path, options: Options) -> ExitCode {
    match bundle(root, &options) {
        Ok(stated) => {
            println!("{stated}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("gpu bundle: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Packs everything; what it came to, for people.
fn bundle(root: &Path, options: &Options) -> Result<String, BundleError> {
    let stage = options.out.join("stage");
    let write = |error| BundleError::Write { path: stage.clone(), error };
    match fs::remove_dir_all(&stage) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(write(error)),
        _ => fs::create_dir_all(&stage).map_err(write)?,
    }
    programs(root, options, &stage)?;
    scripts(root, &stage)?;
    engines(options, &stage)?;
    let manifest = Manifest::of(&stage)?;
    check(&manifest, tree(root), LIMIT)?;
    manifest.write(&stage)?;
    let parts = packed(&stage, &options.out)?;
    fs::remove_dir_all(&stage).map_err(write)?;
    Ok(report(&manifest, &parts))
}

/// The program and the libraries: built now, or from the folder that was named.
fn programs(root: &Path, options: &Options, stage: &Path) -> Result<(), BundleError> {
    let target = crate::guard::target(root);
    let (program, libraries) = match &options.from {
        Some(folder) => (folder.clone(), folder.clone()),
        None => {
            for arguments in [
                ["build", "--profile", "guard", "--package", "plimsoll-guard"],
                ["build", "--profile", "guard", "--package", "plimsoll-phantom"],
                ["build", "--profile", "release", "--package", "plimsoll"],
                ["build", "--profile", "release", "--package", "plimsoll-specimens"],
            ] {
                call(Command::new("cargo").args(arguments).current_dir(root))?;
            }
            (target.join("release"), target.join("guard"))
        }
    };
    for name in PROGRAMS {
        place(&program.join(name), stage, &format!("bin/{name}"), PROGRAM_FLOOR)?;
    }
    for library in LIBRARIES {
        place(&libraries.join(library), stage, &format!("lib/plimsoll/{library}"), LIBRARY_FLOOR)?;
    }
    Ok(())
}

/// Copies an artefact that runs there: what it needs of glibc is no newer than `floor`.
fn place(from: &Path, stage: &Path, to: &str, floor: (u32, u32)) -> Result<(), BundleError> {
    if let Some(needs) = crate::artifacts::newest_glibc(from).filter(|needs| *needs > floor) {
        return Err(BundleError::Glibc { path: from.to_owned(), needs, floor });
    }
    copy(from, &stage.join(to))
}

fn copy(from: &Path, to: &Path) -> Result<(), BundleError> {
    let folder = to.parent().unwrap_or(Path::new("/"));
    let copied = fs::create_dir_all(folder).and_then(|()| fs::copy(from, to));
    copied.map(|_| ()).map_err(|error| BundleError::Copy { path: from.to_owned(), error })
}

/// What `run.py` is made of, and the configurations that it asks.
fn scripts(root: &Path, stage: &Path) -> Result<(), BundleError> {
    let folder = root.join("bench/gpu");
    let unread = |error| BundleError::Copy { path: folder.clone(), error };
    for entry in fs::read_dir(&folder).map_err(unread)? {
        let path = entry.map_err(unread)?.path();
        if path.is_file() {
            let name = path.file_name().unwrap_or_default();
            copy(&path, &stage.join("bench/gpu").join(name))?;
        }
    }
    let rows = "data/exact/b10605.json";
    copy(&root.join(rows), &stage.join(rows))
}

/// Archives that were given, and sources of the builds that have none.
fn engines(options: &Options, stage: &Path) -> Result<(), BundleError> {
    for archive in &options.archives {
        let name = archive.file_name().unwrap_or_default();
        copy(archive, &stage.join("engines").join(name))?;
    }
    for build in options.sources() {
        source::pack(build, &stage.join("source"))?;
    }
    Ok(())
}

/// Bytes of the checkout that travel with a bundle: what git tracks or would.
fn tree(root: &Path) -> u64 {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output();
    let names = listed.map(|output| output.stdout).unwrap_or_default();
    let paths = names.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    paths
        .filter_map(|name| fs::symlink_metadata(root.join(String::from_utf8_lossy(name).as_ref())).ok())
        .map(|file| file.len())
        .sum()
}

fn check(manifest: &Manifest, tree: u64, limit: u64) -> Result<(), BundleError> {
    let bundle = manifest.bytes();
    if bundle + tree <= limit {
        return Ok(());
    }
    let line = |entry: &Entry| format!("  {:>8} KiB  {}\n", entry.bytes >> 10, entry.path);
    Err(BundleError::TooLarge {
        bundle: bundle >> 10,
        tree: tree >> 10,
        limit: limit >> 10,
        longest: manifest.longest().take(5).map(line).collect(),
    })
}

/// The archive, divided where it is longer than a part; the names of its files.
fn packed(stage: &Path, out: &Path) -> Result<Vec<String>, BundleError> {
    let archive = out.join(ARCHIVE);
    for old in parts_in(out) {
        let _ = fs::remove_file(out.join(old));
    }
    call(
        Command::new("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-C"])
            .arg(stage)
            .arg("-cf")
            .arg(&archive)
            .arg("."),
    )?;
    let bytes = fs::metadata(&archive).map(|file| file.len()).unwrap_or(0);
    if bytes > PART {
        let part = PART.to_string();
        call(
            Command::new("split").args(["--bytes", &part, ARCHIVE, &format!("{ARCHIVE}.")]).current_dir(out),
        )?;
        fs::remove_file(&archive).map_err(|error| BundleError::Write { path: archive, error })?;
    }
    Ok(parts_in(out))
}

fn parts_in(out: &Path) -> Vec<String> {
    let entries = fs::read_dir(out).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut parts: Vec<String> = names.filter(|name| name.starts_with(ARCHIVE)).collect();
    parts.sort();
    parts
}

fn report(manifest: &Manifest, parts: &[String]) -> String {
    let files = manifest.longest().map(|entry| format!("{:>8} KiB  {}", entry.bytes >> 10, entry.path));
    let files: Vec<String> = files.take(8).collect();
    format!(
        "{}\n{} files, {} KiB, in {}\nthere: cat {ARCHIVE}* | tar -C /tmp/bundle -xf - && python3 /tmp/bundle/bench/gpu/run.py --out $OUT",
        files.join("\n"),
        manifest.files.len(),
        manifest.bytes() >> 10,
        parts.join(", ")
    )
}

fn call(command: &mut Command) -> Result<(), BundleError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.stdout(io::stderr()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(BundleError::Run { program }),
        Err(error) => Err(BundleError::Start { program, error }),
    }
}

#[cfg(test)]
mod tests;
