//! Provides Rust's standard library for another system: the toolchain's own, or one built from Debian's
//! sources.
//!
//! DECISION: registries of packages have no built library for other systems, and Debian has the sources of
//! the exact release. What is built lies in the user's cache under the compiler's release and commit, with
//! the package beside it, which may leave the mirror.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::{AptState, run_to_end, unpack};

/// The suite that has the sources of this release of Rust.
const SUITE: &str = "trixie-backports";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// What the compiler says of itself (`rustc -Vv`).
#[derive(Debug, PartialEq, Eq)]
struct Compiler {
    release: String,
    commit: String,
}

/// The folder to give to the compiler; `None` if its own has the target.
pub(crate) struct StandardLibrary(Option<PathBuf>);

impl StandardLibrary {
    /// The library that is there already; `None` without one.
    pub(crate) fn find(target: &str) -> io::Result<Option<Self>> {
        let own = output(Command::new("rustc").args(["--print", "target-libdir", "--target", target]))?;
        if has_library(Path::new(own.trim())) {
            return Ok(Some(Self(None)));
        }
        let folder = kept(&Compiler::own()?, target)?;
        Ok(has_library(&libraries(&folder, target)).then_some(Self(Some(folder))))
    }

    pub(crate) fn find_or_build(root: &Path, target: &str) -> io::Result<Self> {
        if let Some(there) = Self::find(target)? {
            return Ok(there);
        }
        let compiler = Compiler::own()?;
        let folder = kept(&compiler, target)?;
        let work = root.join("target/std").join(target);
        let library = compiler.sources(target, &work)?;
        build(target, &library, &work.join("target"), &folder)?;
        fs::remove_dir_all(&work)?;
        Ok(Self(Some(folder)))
    }

    pub(crate) fn flags(&self) -> Option<String> {
        self.0.as_ref().map(|folder| format!("--sysroot {}", folder.display()))
    }
}

/// The folder of libraries and their sources.
fn cache() -> io::Result<PathBuf> {
    let cache = crate::cache().ok_or_else(|| io::Error::other("neither XDG_CACHE_HOME nor HOME is set"))?;
    Ok(cache.join("rust-std"))
}

/// Where the library of a target is kept.
fn kept(compiler: &Compiler, target: &str) -> io::Result<PathBuf> {
    Ok(cache()?.join(format!("{}-{}-{target}", compiler.release, compiler.commit)))
}

impl Compiler {
    fn own() -> io::Result<Self> {
        Self::parse(&output(Command::new("rustc").arg("-Vv"))?)
    }

    fn parse(text: &str) -> io::Result<Self> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        match (field("release: "), field("commit-hash: ").and_then(|hash| hash.get(..9))) {
            (Some(release), Some(commit)) => {
                Ok(Self { release: release.to_owned(), commit: commit.to_owned() })
            }
            _ => Err(io::Error::other("rustc -Vv states no release and commit")),
        }
    }

    /// The folder `library` of the sources, from a package that is kept in the cache.
    fn sources(&self, target: &str, work: &Path) -> io::Result<PathBuf> {
        let (cache, unpacked) = (cache()?, work.join("sources"));
        let kept = cache.join(format!("rust-src-{}.deb", self.release));
        if !kept.is_file() {
            let package =
                self.package(&work.join("apt")).map_err(|error| self.unavailable(target, &kept, &error))?;
            fs::create_dir_all(&cache)?;
            fs::copy(package, &kept)?;
        }
        unpack(&[kept], &unpacked)?;
        Ok(unpacked.join(format!("usr/src/rustc-{}/library", self.release)))
    }

    /// The package of the sources, downloaded.
    fn package(&self, folder: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(folder)?;
        let list = folder.join("sources.list");
        fs::write(&list, format!("deb [signed-by={KEYS}] {} {SUITE} main\n", mirror()?))?;
        let settings = [
            format!("Dir::Etc::SourceList={}", list.display()),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
        ];
        let apt = AptState::open(folder.to_owned(), &settings)?;
        apt.download(&[&format!("rust-src={}+*", self.release)])?;
        apt.packages()?.pop().ok_or_else(|| io::Error::other("apt-get brought no package"))
    }

    fn unavailable(&self, target: &str, kept: &Path, error: &io::Error) -> io::Error {
        io::Error::other(format!(
            "the standard library of Rust {} for {target} cannot be built, because its sources cannot be had \
                ({error})\nhint: `rustup target add {target}` installs a built one; or put Debian's package \
                rust-src of that release at {}",
            self.release,
            kept.display()
        ))
    }
}

/// The mirror of Debian that this machine's apt uses.
fn mirror() -> io::Result<String> {
    let repositories = output(Command::new("apt-get").args(["indextargets", "--format", "$(REPO_URI)"]))?;
    let mirror = repositories.lines().find(|address| address.trim_end_matches('/').ends_with("/debian"));
    mirror.map(str::to_owned).ok_or_else(|| io::Error::other("apt has no mirror of Debian"))
}

/// Builds the library as Rust's own build does, and places it where `--sysroot` looks.
fn build(target: &str, library: &Path, work: &Path, folder: &Path) -> io::Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--target", target, "--features", "panic-unwind,backtrace"]);
    cargo.current_dir(library.join("sysroot")).env("CARGO_TARGET_DIR", work);
    // The sources use features that only the compiler's own library may.
    cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zforce-unstable-if-unmarked -Cembed-bitcode=yes");
    cargo.env("__CARGO_DEFAULT_LIB_METADATA", "plimsoll");
    run_to_end(&mut cargo)?;
    let begun = folder.with_extension("new");
    fs::create_dir_all(libraries(&begun, target))?;
    for entry in fs::read_dir(work.join(target).join("release/deps"))?.flatten() {
        if entry.path().extension().is_some_and(|kind| kind == "rlib") {
            fs::copy(entry.path(), libraries(&begun, target).join(entry.file_name()))?;
        }
    }
    fs::rename(begun, folder)
}

fn libraries(folder: &Path, target: &str) -> PathBuf {
    folder.join("lib/rustlib").join(target).join("lib")
}

fn has_library(folder: &Path) -> bool {
    let mut names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().starts_with("libstd-"))
}

fn output(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_is_known_by_release_and_commit() {
        let text = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\ncommit-hash: 59807616e1fa2540724b\nrelease: 1.95.0\n";
        let known = Compiler { release: "1.95.0".to_owned(), commit: "59807616e".to_owned() };
        assert_eq!(Compiler::parse(text).unwrap(), known);
        assert!(Compiler::parse("rustc 1.95.0\nrelease: 1.95.0\n").is_err());
    }
}
