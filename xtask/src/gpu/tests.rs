//! Tests of `cargo xtask gpu bundle`, with small placeholder files.
//!
//! A bundle arrives unchanged, in parts within the size limit. A bundle above the limit is refused with the
//! names of its largest files.

use super::*;

/// A folder with a program and libraries that are none, and an engine's archive.
fn stand_ins(folder: &Path, archive_bytes: usize) -> (PathBuf, PathBuf) {
    let from = folder.join("from");
    fs::create_dir_all(&from).unwrap();
    for name in [&PROGRAMS[..], &LIBRARIES[..]].concat() {
        fs::write(from.join(name), name).unwrap();
    }
    let archive = folder.join("b8799.small.tar.xz");
    fs::write(&archive, vec![7; archive_bytes]).unwrap();
    (from, archive)
}

fn bundled(folder: &Path, archive_bytes: usize) -> Result<PathBuf, BundleError> {
    let (from, archive) = stand_ins(folder, archive_bytes);
    let out = folder.join("out");
    let sources = vec!["none".to_owned()];
    let options = Options { archives: vec![archive], sources, from: Some(from), out: out.clone() };
    bundle(&crate::root(), &options).map(|_| out)
}

#[test]
fn a_bundle_arrives_whole_and_its_scripts_see_what_is_not_as_it_was_packed() {
    let folder = tempfile::tempdir().unwrap();
    let out = bundled(folder.path(), 16 << 20).unwrap();
    let parts = parts_in(&out);
    assert_eq!(parts, ["plimsoll-gpu.tar.aa", "plimsoll-gpu.tar.ab"]);
    assert!(!out.join("stage").exists());
    let there = folder.path().join("there");
    fs::create_dir(&there).unwrap();
    let script = "cat \"$1\"/plimsoll-gpu.tar* | tar -C \"$2\" -xf -";
    call(Command::new("sh").args(["-c", script, "sh"]).arg(&out).arg(&there)).unwrap();
    let verify = "import sys; sys.path.insert(0, sys.argv[1] + '/bench/gpu'); import session; print('; '.join(session.verify(sys.argv[1])))";
    let stated = || {
        let output = Command::new("python3").args(["-c", verify]).arg(&there).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(stated(), "");
    fs::write(there.join("bin/plimsoll"), "another").unwrap();
    fs::remove_file(there.join("engines/b8799.small.tar.xz")).unwrap();
    assert_eq!(
        stated(),
        "bin/plimsoll is not what was packed; engines/b8799.small.tar.xz: No such file or directory"
    );
}

#[test]
fn more_than_travels_is_refused_with_what_takes_most() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("engine.tar.xz"), vec![0; 300 << 10]).unwrap();
    fs::write(folder.path().join("run.py"), vec![0; 2 << 10]).unwrap();
    let manifest = Manifest::of(folder.path()).unwrap();
    assert!(check(&manifest, 0, 302 << 10).is_ok());
    let error = check(&manifest, 100 << 10, 400 << 10).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "302 KiB of bundle and 100 KiB of working tree are more than the 400 KiB that travel\n"
        ),
        "{error}"
    );
    assert!(error.contains("300 KiB  engine.tar.xz\n") && error.contains("hint: leave an engine out"));
}

#[test]
fn a_name_that_would_break_the_manifest_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a \"b\".py"), "").unwrap();
    let error = Manifest::of(folder.path()).unwrap_err().to_string();
    assert!(error.contains("cannot be packed"), "{error}");
}
