//! Hashes files by name and content, to skip a check that has already passed for the same files.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};

/// Installed by npm, as the lock file beside it says.
const INSTALLED: &str = "node_modules";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stamp(String);

impl Stamp {
    /// The stamp of these files and folders. Names below `root` count without it, so that it is the same in
    /// each clone.
    pub(crate) fn of(root: &Path, places: &[PathBuf]) -> io::Result<Self> {
        let mut files = Vec::new();
        for place in places {
            if place.is_dir() { list(place, &mut files)? } else { files.push(place.clone()) }
        }
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

    pub(crate) fn is_in(&self, kept: &Path) -> bool {
        fs::read_to_string(kept).is_ok_and(|last| last.trim_end() == self.0)
    }

    /// Writes it down. Without it, the next run checks again.
    pub(crate) fn keep(&self, kept: &Path) {
        if let Err(error) = fs::write(kept, format!("{}\n", self.0)) {
            eprintln!("cannot keep {}: {error}", kept.display());
        }
    }
}

/// Files below `folder`.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == INSTALLED {
            continue;
        }
        if entry.file_type()?.is_dir() {
            list(&entry.path(), files)?;
        } else {
            files.push(entry.path());
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
    fn a_stamp_changes_with_each_file_and_not_with_installed_packages() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let write = |name: &str, text: &str| {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("target/program", "program");
        write("page/src/page.css", "a");
        write("other/file", "b");
        let (places, kept) = (["target/program", "page"].map(|name| root.join(name)), root.join("kept"));
        let stamp = || Stamp::of(root, &places).unwrap();
        let first = stamp();
        assert!(!first.is_in(&kept));
        first.keep(&kept);
        assert!(stamp().is_in(&kept));
        write("page/node_modules/x/x.js", "installed");
        write("other/file", "changed");
        assert_eq!(stamp(), first);
        let mut last = first;
        for name in ["page/src/page.css", "page/src/new.ts", "target/program"] {
            write(name, &format!("changed {name}"));
            assert!(stamp() != last && !stamp().is_in(&kept), "{name}");
            last = stamp();
        }
        fs::remove_file(root.join("target/program")).unwrap();
        assert!(Stamp::of(root, &places).is_err());
    }
}
