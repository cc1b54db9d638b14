//! Record of the last successful run of the page's tests: hashes of its sources, its build, and the tested programs.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};

/// Programs and libraries that the tests start, beside this one.
const PROGRAMS: [&str; 4] = ["plimsoll", "fake-engine", "libnvidia_ml.so", "specimen"];
const SOURCES: &str = "page";
const BUILD: &str = "crates/serve/src/route/page";
/// What npm installs, by the lock file among the sources.
const INSTALLED: &str = "node_modules";

/// What the tests depend on, as one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stamp(String);

impl Stamp {
    /// The stamp of the tree as it is, with the programs of `built`.
    pub(super) fn of(root: &Path, built: &Path) -> io::Result<Self> {
        let mut files = PROGRAMS.map(|name| built.join(name)).to_vec();
        list(&root.join(SOURCES), &mut files)?;
        list(&root.join(BUILD), &mut files)?;
        files.sort();
        let mut context = Context::new(&SHA256);
        for file in files {
            let name = file.strip_prefix(root).unwrap_or(&file).to_string_lossy();
            context.update(format!("{name}\0{}\0", fs::metadata(&file)?.len()).as_bytes());
            feed(&mut context, &file)?;
        }
        let digest = context.finish();
        Ok(Self(digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    pub(super) fn is_kept(&self, root: &Path) -> bool {
        fs::read_to_string(kept(root)).is_ok_and(|last| last == self.0)
    }

    /// Keeps it as that of a green run. Without it, the next run looks again.
    pub(super) fn keep(&self, root: &Path) {
        if let Err(error) = fs::write(kept(root), &self.0) {
            eprintln!("cannot keep {}: {error}", kept(root).display());
        }
    }
}

fn kept(root: &Path) -> PathBuf {
    root.join("target/page-stamp")
}

/// Files below `folder`.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == INSTALLED {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => list(&entry.path(), files)?,
            false => files.push(entry.path()),
        }
    }
    Ok(())
}

fn feed(context: &mut Context, path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut bytes = vec![0; 1 << 20];
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(()),
            count => context.update(&bytes[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_changes_with_sources_and_programs_and_not_with_installed_packages() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        PROGRAMS.iter().for_each(|name| write(&format!("target/debug/{name}"), "program"));
        write("page/src/page.css", "a");
        write("crates/serve/src/route/page/page.js", "b");
        let stamp = || Stamp::of(root.path(), &root.path().join("target/debug")).unwrap();
        let first = stamp();
        assert!(!first.is_kept(root.path()));
        first.keep(root.path());
        assert!(stamp().is_kept(root.path()));
        write("page/node_modules/x/x.js", "installed");
        assert_eq!(stamp(), first);
        let changes = [
            "page/src/page.css",
            "page/src/new.ts",
            "crates/serve/src/route/page/page.js",
            "target/debug/plimsoll",
        ];
        let mut last = first;
        for name in changes {
            write(name, &format!("changed {name}"));
            assert!(stamp() != last && !stamp().is_kept(root.path()), "{name}");
            last = stamp();
        }
        fs::remove_file(root.path().join("target/debug/specimen")).unwrap();
        assert!(Stamp::of(root.path(), &root.path().join("target/debug")).is_err());
    }
}
