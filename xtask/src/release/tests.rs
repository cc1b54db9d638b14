//! Tests of the release's packages, built from small files instead of the real programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::*;
use options::Architecture;
use tree::FileTree;

mod booted;
mod installed;
mod read;
mod rebuilt;
mod shipped;

const DATE: u64 = 1_700_000_000;

fn root() -> PathBuf {
    crate::root()
}

/// What a release installs, and the Python package, with three bytes for each program.
fn small_with_python() -> (FileTree, FileTree) {
    let folder = tempfile::tempdir().unwrap();
    for name in ["plimsoll", "libplimsoll_guard.so", "libplimsoll_phantom.so", "libplimsoll_abi.so"] {
        fs::write(folder.path().join(name), "elf").unwrap();
    }
    let programs = Programs::in_folder(folder.path());
    let tree = contents::tree(&root(), &programs, b"{}").unwrap();
    (tree, contents::python(&root(), &programs).unwrap())
}

fn small() -> FileTree {
    small_with_python().0
}

/// Options of a release that nobody signs.
fn options(out: &Path, architecture: Architecture) -> Options {
    let public = PathBuf::from("no.pub");
    Options {
        out: Some(out.to_owned()),
        architecture,
        from: None,
        sign: None,
        public,
        repository: None,
        trial: false,
    }
}

fn deb() -> Vec<u8> {
    deb::package(&root(), &small(), Architecture::Amd64, Some((2, 34)), DATE).unwrap()
}

/// The output of a program on a file with these bytes.
fn reported(program: &str, words: &[&str], bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("package");
    fs::write(&path, bytes).unwrap();
    let output = Command::new(program).args(words).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_deb_is_one_for_dpkg_and_holds_what_a_service_needs() {
    let deb = deb();
    let control = reported("dpkg-deb", &["--field"], &deb);
    for line in ["Package: plimsoll", "Architecture: amd64", "Depends: libc6 (>= 2.34), libgcc-s1"] {
        assert!(control.lines().any(|reported| reported == line), "{line}\n{control}");
    }
    let list = reported("dpkg-deb", &["--contents"], &deb);
    for (mode, path) in [
        ("-rwxr-xr-x", "usr/bin/plimsoll"),
        ("-rw-r--r--", "usr/lib/plimsoll/libplimsoll_guard.so"),
        ("-rw-r--r--", "usr/lib/plimsoll/libplimsoll_phantom.so"),
        ("-rw-r--r--", "usr/lib/systemd/system/plimsoll.service"),
        ("-rw-r--r--", "usr/lib/systemd/user/plimsoll.service"),
        ("-rw-r--r--", "usr/share/man/man1/plimsoll-serve.1.gz"),
        ("-rw-r--r--", "usr/share/bash-completion/completions/plimsoll"),
        ("-rw-r--r--", "etc/plimsoll/plimsoll.toml"),
        ("drwxr-xr-x", "usr/share/man/man1/"),
    ] {
        let is_it = |line: &str| line.starts_with(mode) && line.ends_with(&format!(" {path}"));
        assert!(list.lines().any(is_it), "{mode} {path}\n{list}");
    }
    assert!(list.lines().all(|line| line.contains(" root/root ")), "{list}");
    assert!(
        list.lines().all(|line| line.contains(" 2023-11-14 ") || line.contains(" 2023-11-15 ")),
        "{list}"
    );
}

#[test]
fn scripts_of_the_deb_are_shell_and_each_installed_file_has_its_sum() {
    let folder = tempfile::tempdir().unwrap();
    let (package, control) = (folder.path().join("p.deb"), folder.path().join("control"));
    fs::write(&package, deb()).unwrap();
    let done = Command::new("dpkg-deb").arg("--control").args([&package, &control]).status().unwrap();
    assert!(done.success());
    for script in ["postinst", "prerm", "postrm"] {
        let done = Command::new("sh").arg("-n").arg(control.join(script)).status().unwrap();
        assert!(done.success(), "{script}");
    }
    assert_eq!(fs::read_to_string(control.join("conffiles")).unwrap(), "/etc/plimsoll/plimsoll.toml\n");
    let sums = fs::read_to_string(control.join("md5sums")).unwrap();
    assert!(sums.contains(&format!("{:x}  usr/bin/plimsoll\n", md5::compute("elf"))), "{sums}");
    assert_eq!(sums.lines().count() + 1, small().files().count());
}

#[test]
fn the_same_files_give_the_same_bytes_whatever_their_order_and_date() {
    assert!(deb() == deb());
    let mut one = FileTree::default();
    let mut other = FileTree::default();
    one.file("b/c", 0o644, "1");
    one.file("a", 0o755, "2");
    other.file("a", 0o755, "2");
    other.file("b/c", 0o644, "1");
    assert!(one.compressed(DATE).unwrap() == other.compressed(DATE).unwrap());
    assert!(one.compressed(DATE).unwrap() != one.compressed(DATE + 1).unwrap());
    let list = reported("tar", &["--list", "--file"], &one.tar(DATE).unwrap());
    assert_eq!(list, "a\nb/\nb/c\n");
}

#[test]
fn the_archive_lies_below_one_folder_for_any_prefix() {
    let archive = contents::archive(&small());
    let paths: Vec<&str> = archive.files().map(|(path, _)| path).collect();
    let top = format!("plimsoll-{VERSION}/");
    assert!(paths.iter().all(|path| path.starts_with(&top)), "{paths:?}");
    for path in ["bin/plimsoll", "lib/plimsoll/libplimsoll_guard.so", "etc/plimsoll/plimsoll.toml"] {
        assert!(paths.contains(&format!("{top}{path}").as_str()), "{path}: {paths:?}");
    }
}

/// A blob that a descriptor names, after its digest and its size were compared.
fn blob(layout: &Path, descriptor: &Value) -> Vec<u8> {
    let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    let bytes = fs::read(layout.join("blobs/sha256").join(digest)).unwrap();
    assert_eq!(sha256(&bytes), digest);
    assert_eq!(descriptor["size"].as_u64(), u64::try_from(bytes.len()).ok());
    bytes
}

#[test]
fn the_image_is_a_layout_whose_digests_hold_down_to_the_plain_layers() {
    let mut libraries = FileTree::default();
    libraries.file("usr/lib64/ld.so", 0o755, "loader");
    let image = oci::image(&small(), &libraries, Architecture::Arm64, DATE).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let layout = folder.path();
    fs::write(layout.join("image.tar"), &image).unwrap();
    let unpacked = Command::new("tar").args(["-xf", "image.tar"]).current_dir(layout).status().unwrap();
    assert!(unpacked.success());
    let parse = |bytes: Vec<u8>| serde_json::from_slice::<Value>(&bytes).unwrap();
    let index = parse(fs::read(layout.join("index.json")).unwrap());
    assert_eq!(index["manifests"][0]["platform"]["architecture"], "arm64");
    let manifest = parse(blob(layout, &index["manifests"][0]));
    let configuration = parse(blob(layout, &manifest["config"]));
    assert_eq!(configuration["config"]["Entrypoint"][0], "/usr/bin/plimsoll");
    let layers = manifest["layers"].as_array().unwrap();
    let plain = configuration["rootfs"]["diff_ids"].as_array().unwrap();
    assert_eq!((layers.len(), plain.len()), (2, 2));
    for (layer, plain) in layers.iter().zip(plain) {
        let mut bytes = Vec::new();
        let packed = blob(layout, layer);
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed.as_slice()), &mut bytes).unwrap();
        assert_eq!(plain.as_str().unwrap(), format!("sha256:{}", sha256(&bytes)));
    }
    assert!(image == oci::image(&small(), &libraries, Architecture::Arm64, DATE).unwrap());
}

#[test]
fn the_bill_of_materials_names_what_is_linked_and_no_test_library() {
    let bill: Value = serde_json::from_slice(&sbom::of(&root(), Architecture::Amd64).unwrap()).unwrap();
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    let components = bill["components"].as_array().unwrap();
    let named = |name: &str| components.iter().find(|component| component["name"] == name);
    let hyper = named("hyper").unwrap();
    assert_eq!(hyper["licenses"][0]["expression"], "MIT");
    assert_eq!(hyper["hashes"][0]["content"].as_str().map(str::len), Some(64));
    assert!(hyper["purl"].as_str().unwrap().starts_with("pkg:cargo/hyper@1."));
    for test_only in ["proptest", "assert_cmd", "loom", "vt100", "plimsoll-serve"] {
        assert!(named(test_only).is_none(), "{test_only}");
    }
    let every = components.iter().all(|component| component["licenses"][0]["expression"].is_string());
    assert!(every, "a library without a licence");
    let graph = bill["dependencies"].as_array().unwrap();
    assert!(graph.iter().any(|entry| entry["ref"] == format!("pkg:cargo/plimsoll-guard@{VERSION}")));
}

/// The most that `systemd-analyze security` may find; 10 is a service without any limit.
const EXPOSURE: f64 = 2.5;

#[test]
fn systemd_understands_the_units_and_finds_the_service_of_the_machine_confined() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return eprintln!("systemd-analyze is not here; the units are not checked");
    }
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("plimsoll.service");
    for (template, of_user) in [("system", false), ("user", true)] {
        let text = fs::read_to_string(root().join(format!("crates/cli/units/{template}.service"))).unwrap();
        // `verify` looks for the program and the pages, which are not installed here.
        let text =
            text.replace("/usr/bin/plimsoll", "/bin/true").replace("man:plimsoll-serve(1)", "https://x.test");
        fs::write(&unit, text).unwrap();
        let mut verify = Command::new("systemd-analyze");
        verify.args(if of_user { ["verify", "--user"].as_slice() } else { &["verify"] });
        let output = verify.arg(&unit).env("XDG_RUNTIME_DIR", folder.path()).output().unwrap();
        let stated = String::from_utf8_lossy(&output.stderr).into_owned();
        let ours: Vec<&str> = stated.lines().filter(|line| line.contains("plimsoll.service")).collect();
        assert_eq!(ours, Vec::<&str>::new(), "{stated}");
    }
    let text = fs::read_to_string(root().join("crates/cli/units/system.service")).unwrap();
    fs::write(&unit, text).unwrap();
    let output = Command::new("systemd-analyze")
        .args(["security", "--no-pager", "--offline=yes"])
        .arg(&unit)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap();
    let stated = String::from_utf8_lossy(&output.stdout).into_owned();
    let overall = stated.lines().find(|line| line.contains("Overall exposure level")).unwrap_or_default();
    let figure = overall.split(": ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
    assert!(
        figure.is_some_and(|figure| figure <= EXPOSURE),
        "{stated}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn libraries_of_the_image_are_found_with_those_that_they_name() {
    let program = std::env::current_exe().unwrap();
    let here = if cfg!(target_arch = "aarch64") { Architecture::Arm64 } else { Architecture::Amd64 };
    let tree = libraries::needed(&program, here).unwrap();
    let paths: Vec<&str> = tree.files().map(|(path, _)| path).collect();
    assert!(paths.iter().any(|path| path.ends_with("/libc.so.6")), "{paths:?}");
    assert!(paths.contains(&format!("usr/{}", here.loader()).as_str()), "{paths:?}");
    let text = root().join("Cargo.toml");
    assert!(matches!(libraries::needed(&text, here), Err(LibraryError::NoProgram { .. })));
}
