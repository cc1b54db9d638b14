//! Tests of the installation script with a signed release of stand-ins, and only the programs that it names.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::process::Output;

use tempfile::TempDir;

use super::*;

/// What the script may need, beside one of the two that verify.
const NEEDED: [&str; 21] = [
    "cat",
    "cp",
    "find",
    "grep",
    "gzip",
    "head",
    "mkdir",
    "mktemp",
    "mv",
    "od",
    "rm",
    "rmdir",
    "sed",
    "sh",
    "sha256sum",
    "sort",
    "tail",
    "tar",
    "touch",
    "uname",
    "wc",
];
const PROGRAM: &str = "#!/bin/sh\nif [ \"$1\" = --version ]; then echo plimsoll 0.1.0; fi\n";

/// A release, and the home of a user who installs it.
struct Shipped(TempDir);

impl Shipped {
    /// A release signed by a key of its own; `None` without minisign.
    fn new() -> Option<Self> {
        let shipped = Self(tempfile::tempdir().unwrap());
        let out = shipped.at("out");
        for folder in ["out", "home", "from", "bin"] {
            fs::create_dir(shipped.at(folder)).unwrap();
        }
        for name in ["plimsoll", "libplimsoll_guard.so", "libplimsoll_phantom.so", "libplimsoll_abi.so"] {
            fs::write(shipped.at("from").join(name), PROGRAM).unwrap();
        }
        shipped.make_key("key")?;
        let tree = contents::tree(&root(), &Programs::in_folder(&shipped.at("from")), b"{}").unwrap();
        let here = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let archive = format!("plimsoll-{VERSION}-linux-{here}.tar.gz");
        fs::write(out.join(archive), contents::archive(&tree).compressed(DATE).unwrap()).unwrap();
        let keys = signature::public_keys(&shipped.at("key.pub"), true).unwrap();
        recipes::write(&root(), &out, &recipes::values(&out, &keys, Some((2, 34)), None)).unwrap();
        fs::write(out.join("SHA256SUMS"), sums(&out).unwrap()).unwrap();
        signature::sign(&out.join("SHA256SUMS"), &shipped.at("key"), &keys).unwrap();
        for name in NEEDED {
            shipped.provide(name);
        }
        Some(shipped)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn make_key(&self, name: &str) -> Option<()> {
        let public = self.at(&format!("{name}.pub"));
        let made = Command::new("minisign")
            .args(["-G", "-W", "-s"])
            .arg(self.at(name))
            .arg("-p")
            .arg(public)
            .output();
        if made.is_err() {
            eprintln!("minisign is not here; the script is not tested");
        }
        made.ok()?.status.success().then_some(())
    }

    fn provide(&self, program: &str) {
        let folders = std::env::var_os("PATH").unwrap();
        let path =
            std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.exists());
        symlink(path.unwrap_or_else(|| panic!("{program} is not here")), self.at("bin").join(program))
            .unwrap();
    }

    fn with(self, verifier: &str) -> Self {
        self.provide(verifier);
        self
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut script = Command::new("sh");
        script.arg(self.at("out/install.sh")).args(words).env_clear().env("HOME", self.at("home"));
        script.env("PATH", self.at("bin")).current_dir(self.at("home")).output().unwrap()
    }

    /// Standard output of a run that succeeds.
    fn installed(&self, words: &[&str]) -> String {
        let out = self.at("out").display().to_string();
        let output = self.run(&[&["--from", &out], words].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What the script says where it refuses, after which no file is there.
    fn refused(&self, words: &[&str]) -> String {
        let out = self.at("out").display().to_string();
        let output = self.run(&[&["--from", &out], words].concat());
        assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(self.paths().is_empty(), "{:?}", self.paths());
        String::from_utf8(output.stderr).unwrap()
    }

    /// Everything in the user's home.
    fn paths(&self) -> BTreeSet<String> {
        let mut list = Command::new("find");
        let output = list.args([".", "-mindepth", "1"]).current_dir(self.at("home")).output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    fn change_byte(&self, name: &str, at: usize) {
        let path = self.at("out").join(name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] ^= 1;
        fs::write(path, bytes).unwrap();
    }

    fn archive(&self) -> String {
        let names = fs::read_dir(self.at("out"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.into_iter().find(|name| name.ends_with(".tar.gz")).unwrap()
    }
}

#[test]
fn a_signed_archive_is_installed_twice_and_removed_without_a_trace() {
    for verifier in ["minisign", "openssl"] {
        let Some(shipped) = Shipped::new() else { return };
        let shipped = shipped.with(verifier);
        fs::create_dir_all(shipped.at("home/.config/plimsoll")).unwrap();
        fs::create_dir_all(shipped.at("home/.local/bin")).unwrap();
        let before = shipped.paths();
        let stated = shipped.installed(&[]);
        assert!(stated.contains(&format!("(checked by {verifier})")), "{stated}");
        let paths = shipped.paths();
        for path in ["bin/plimsoll", "lib/plimsoll/libplimsoll_guard.so", "share/man/man1/plimsoll.1.gz"] {
            assert!(paths.contains(&format!("./.local/{path}")), "{path}: {paths:?}");
        }
        // A file of an older version leaves with the next installation.
        let record = shipped.at("home/.local/lib/plimsoll/installed");
        let older = format!("{}share/man/old.1\n", fs::read_to_string(&record).unwrap());
        fs::write(&record, older).unwrap();
        fs::write(shipped.at("home/.local/share/man/old.1"), "").unwrap();
        shipped.installed(&[]);
        assert_eq!(shipped.paths(), paths);
        for folder in ["home/.cache/plimsoll", "home/.local/state/plimsoll"] {
            fs::create_dir_all(shipped.at(folder)).unwrap();
        }
        let output = shipped.run(&["--uninstall"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let left: Vec<_> = shipped.paths().difference(&before).cloned().collect();
        assert_eq!(left, Vec::<String>::new());
        assert!(shipped.paths().contains("./.config/plimsoll"));
    }
}

#[test]
fn a_changed_byte_is_refused_before_anything_is_unpacked() {
    for verifier in ["minisign", "openssl"] {
        for (name, at, reason) in [
            ("SHA256SUMS", 3, "not signed by"),
            ("SHA256SUMS.minisig", 90, "not signed by"),
            ("", 400, "is not the file"),
        ] {
            let Some(shipped) = Shipped::new() else { return };
            let shipped = shipped.with(verifier);
            let name = if name.is_empty() { shipped.archive() } else { name.to_owned() };
            shipped.change_byte(&name, at);
            let stated = shipped.refused(&[]);
            assert!(stated.contains(reason), "{verifier} {name}: {stated}");
        }
    }
}

#[test]
fn only_a_key_of_the_script_or_of_the_command_line_counts() {
    let Some(shipped) = Shipped::new() else { return };
    let shipped = shipped.with("openssl");
    shipped.make_key("other").unwrap();
    let key = |name: &str| signature::public_keys(&shipped.at(name), true).unwrap().remove(0);
    let (own, other) = (key("key.pub"), key("other.pub"));
    assert!(shipped.refused(&["--key", &other]).contains("not signed by"));
    assert!(shipped.refused(&["--key", "RWxx"]).contains("not signed by"));
    // As at a change of keys: the older one is still known.
    shipped.installed(&["--key", &format!("{other} {own}")]);
    let secret = shipped.at("other");
    let signed = signature::sign(&shipped.at("out/SHA256SUMS"), &secret, &[own]);
    assert!(matches!(signed, Err(SignatureError::OtherKey(_))), "{signed:?}");
}

#[test]
fn without_a_program_that_verifies_only_checksum_only_installs() {
    let Some(shipped) = Shipped::new() else { return };
    assert!(shipped.refused(&[]).contains("neither minisign nor openssl 3"));
    assert!(shipped.refused(&["--checksum-only", "--prefix"]).contains("--prefix needs a value"));
    shipped.change_byte(&shipped.archive(), 400);
    assert!(shipped.refused(&["--checksum-only"]).contains("is not the file"));
    shipped.change_byte(&shipped.archive(), 400);
    shipped.installed(&["--checksum-only", "--prefix", "a place/here"]);
    assert!(shipped.paths().contains("./a place/here/bin/plimsoll"));
}

#[test]
fn files_of_others_are_neither_written_over_nor_removed() {
    let Some(shipped) = Shipped::new() else { return };
    let shipped = shipped.with("openssl");
    let program = shipped.at("home/.local/bin/plimsoll");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    fs::write(&program, "another's").unwrap();
    let out = shipped.at("out").display().to_string();
    let output = shipped.run(&["--from", &out]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("and not from install.sh"));
    assert_eq!(fs::read_to_string(&program).unwrap(), "another's");
    assert!(!shipped.run(&["--uninstall"]).status.success());
    let record = shipped.at("home/.local/lib/plimsoll/installed");
    fs::create_dir_all(record.parent().unwrap()).unwrap();
    fs::write(&record, "bin/../../keep\n").unwrap();
    fs::write(shipped.at("home/keep"), "").unwrap();
    let output = shipped.run(&["--uninstall"]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("names a file outside of"));
    assert!(shipped.at("home/keep").exists() && program.exists());
}

#[test]
fn a_system_with_musl_alone_is_refused_before_anything_is_fetched() {
    let Some(shipped) = Shipped::new() else { return };
    let shipped = shipped.with("openssl");
    // The script of a system whose loaders are in another folder.
    let script = shipped.at("out/install.sh");
    let lib = shipped.at("lib").display().to_string();
    let text = fs::read_to_string(&script).unwrap().replace("=/lib64/", &format!("={lib}/"));
    fs::write(
        &script,
        text.replace("=/lib/", &format!("={lib}/")).replace("/lib/ld-musl-", &format!("{lib}/ld-musl-")),
    )
    .unwrap();
    fs::create_dir(shipped.at("lib")).unwrap();
    fs::write(shipped.at("lib/ld-musl-x86_64.so.1"), "").unwrap();
    fs::rename(shipped.at("out/SHA256SUMS"), shipped.at("sums")).unwrap();
    let stated = shipped.refused(&[]);
    assert!(stated.contains("this system has musl and no glibc") && stated.lines().count() == 1, "{stated}");
    // A system may have both.
    fs::rename(shipped.at("sums"), shipped.at("out/SHA256SUMS")).unwrap();
    for loader in ["ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"] {
        fs::write(shipped.at("lib").join(loader), "").unwrap();
    }
    shipped.installed(&[]);
}
