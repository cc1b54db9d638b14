//! Tests of the wheel and the recipes, by the programs that read them.

use std::collections::BTreeMap;

use super::*;

const FLOOR: Option<(u32, u32)> = Some((2, 34));
/// Compares each file of a wheel with its list of files.
const RECORD: &str = "
import base64, csv, hashlib, io, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
assert wheel.testzip() is None
record, = (name for name in wheel.namelist() if name.endswith('.dist-info/RECORD'))
rows = list(csv.reader(io.StringIO(wheel.read(record).decode())))
assert [row[0] for row in rows][:-1] == [name for name in wheel.namelist() if name != record], rows
for name, digest, size in rows[:-1]:
    data = wheel.read(name)
    own = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')
    assert (digest, size) == ('sha256=' + own, str(len(data))), name
for entry in wheel.infolist():
    print(oct(entry.external_attr >> 16), entry.filename)
";

fn wheel() -> Vec<u8> {
    let (tree, python) = small_with_python();
    wheel::package(&root(), (&tree, python), Architecture::Amd64, FLOOR).unwrap()
}

#[test]
fn the_wheel_is_one_for_python_and_holds_program_and_libraries() {
    let list = reported("python3", &["-c", RECORD], &wheel());
    for line in [
        "0o100644 plimsoll/__init__.py",
        "0o100644 plimsoll/libplimsoll_abi.so",
        "0o100644 plimsoll/py.typed",
        "0o100755 plimsoll_gpu-0.1.0.data/scripts/plimsoll",
        "0o100644 plimsoll_gpu-0.1.0.data/data/lib/plimsoll/libplimsoll_guard.so",
        "0o100644 plimsoll_gpu-0.1.0.data/data/share/man/man1/plimsoll.1.gz",
        "0o100644 plimsoll_gpu-0.1.0.dist-info/licenses/LICENSE-MIT",
        "0o100644 plimsoll_gpu-0.1.0.dist-info/sboms/plimsoll.cdx.json",
    ] {
        assert!(list.lines().any(|listed| listed == line.replace("0.1.0", VERSION)), "{line}\n{list}");
    }
    assert!(!list.contains("systemd") && !list.contains("etc/"), "{list}");
    assert!(wheel() == wheel());
    let name = wheel::name(Architecture::Arm64, FLOOR);
    assert_eq!(name, format!("plimsoll_gpu-{VERSION}-py3-none-manylinux_2_34_aarch64.whl"));
    assert!(wheel::name(Architecture::Amd64, None).ends_with("-py3-none-linux_x86_64.whl"));
}

/// Facts of a release with archives for both architectures.
fn facts(folder: &Path) -> BTreeMap<&'static str, String> {
    for architecture in [Architecture::Amd64, Architecture::Arm64] {
        let name = format!("plimsoll-{VERSION}-linux-{architecture}.tar.gz");
        fs::write(folder.join(name), contents::archive(&small()).compressed(DATE).unwrap()).unwrap();
    }
    recipes::values(folder, &[], FLOOR, Some("https://example.test/plimsoll"))
}

#[test]
fn recipes_are_understood_by_the_programs_that_read_them() {
    let folder = tempfile::tempdir().unwrap();
    recipes::write(&root(), folder.path(), &facts(folder.path())).unwrap();
    let flake = root().join("packaging/nix/flake.nix");
    for (program, words, file) in [
        ("ruby", ["-c"].as_slice(), folder.path().join("plimsoll.rb")),
        ("bash", &["-n"], folder.path().join("PKGBUILD")),
        ("rpmspec", &["--parse"], folder.path().join("plimsoll.spec")),
        ("shellcheck", &[], folder.path().join("install.sh")),
        ("nix-instantiate", &["--parse"], flake),
    ] {
        match Command::new(program).args(words).arg(&file).output() {
            Err(_) => eprintln!("{program} is not here; {} is not read", file.display()),
            Ok(output) => assert!(output.status.success(), "{program}: {output:?}"),
        }
    }
    let formula = fs::read_to_string(folder.path().join("plimsoll.rb")).unwrap();
    assert!(
        formula.contains(&format!("/releases/download/v{VERSION}/plimsoll-{VERSION}-linux-arm64.tar.gz"))
    );
    assert!(!formula.contains('@'), "{formula}");
}

#[test]
fn a_recipe_whose_facts_are_not_known_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut facts = facts(folder.path());
    facts.remove("SHA256_ARM64");
    fs::write(folder.path().join("PKGBUILD"), "of an earlier release").unwrap();
    recipes::write(&root(), folder.path(), &facts).unwrap();
    let is_there = |name: &&str| folder.path().join(name).exists();
    let written: Vec<&str> = recipes::RECIPES.into_iter().filter(is_there).collect();
    assert_eq!(written, ["install.sh", "plimsoll.spec"]);
}

/// Every file of an RPM is one of the list, or `rpmbuild` fails.
#[test]
fn rpmbuild_packs_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    recipes::write(&root(), folder.path(), &facts(folder.path())).unwrap();
    let mut build = Command::new("rpmbuild");
    build.arg("-bb").args(["--define", &format!("_sourcedir {}", folder.path().display())]);
    build.args(["--define", &format!("_topdir {}", folder.path().join("rpm").display())]);
    match build.arg(folder.path().join("plimsoll.spec")).output() {
        Err(_) => eprintln!("rpmbuild is not here; no RPM is built"),
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
    }
}
