//! Tests of the packages on clean systems: the deb in a Debian chroot, and the image with no other system
//! files.

use std::collections::BTreeSet;

use super::system::System;
use super::*;

/// Starts the server as its user, loads a model, and upgrades the package meanwhile.
const SERVE: &str = r#"
cat > /tmp/own.toml <<'TOML'
[models.a]
cmd = "/opt/fake-engine --port ${PORT} --alias a"
memory = "64MiB"
TOML
setpriv --reuid plimsoll --regid plimsoll --init-groups --no-new-privs \
    plimsoll serve /tmp/own.toml --listen 127.0.0.1:0 --card name=a,kind=host,total=1GiB > /tmp/address 2> /tmp/said &
server=$!
while ! grep -q http /tmp/address; do kill -0 $server || { cat /tmp/said; exit 1; }; sleep 0.1; done
export PLIMSOLL_URL=$(cat /tmp/address)
plimsoll load a
dpkg -i /tmp/plimsoll.deb
plimsoll ps --json
kill -TERM $server
wait $server
rm /tmp/own.toml /tmp/address /tmp/said
"#;

/// The packages of the programs that the tests have built.
pub(super) fn built(out: &Path) -> Option<PathBuf> {
    let target = crate::guard::target(&root());
    let from = out.join("from");
    fs::create_dir(&from).unwrap();
    for file in [
        "debug/plimsoll",
        "debug/libplimsoll_abi.so",
        "guard/libplimsoll_guard.so",
        "guard/libplimsoll_phantom.so",
    ] {
        let path = target.join(file);
        fs::copy(&path, from.join(path.file_name().unwrap())).ok()?;
    }
    let sums = release(&root(), &Options { from: Some(from), ..options(out, Architecture::Amd64) }).unwrap();
    assert_eq!(sums.lines().count(), 7, "{sums}");
    Some(out.join(format!("plimsoll_{VERSION}_amd64.deb")))
}

fn run(system: &System, script: &str) -> String {
    system.run(script).unwrap()
}

fn installed_in(suite: &str) {
    let folder = tempfile::tempdir().unwrap();
    let Some(package) = built(folder.path()) else {
        return eprintln!("the programs are not built; `cargo xtask test --long` builds them");
    };
    let place = tempfile::tempdir().unwrap();
    let Ok(system) = System::of_debian(suite, &["systemd"], place.path()) else {
        return eprintln!("debootstrap is not here; the package is not installed");
    };
    fs::copy(package, system.folder().join("tmp/plimsoll.deb")).unwrap();
    fs::copy(
        crate::guard::target(&root()).join("debug/fake-engine"),
        system.folder().join("opt/fake-engine"),
    )
    .unwrap();
    let before = system.paths().unwrap();

    run(&system, "dpkg -i /tmp/plimsoll.deb");
    assert_eq!(run(&system, "dpkg --verify plimsoll"), "");
    assert_eq!(run(&system, "stat -c '%a %U %G' /etc/plimsoll/plimsoll.toml"), "640 root plimsoll\n");
    let groups = run(&system, "id -nG plimsoll");
    assert!(groups.contains("video") && groups.contains("render"), "{groups}");
    assert_eq!(run(&system, "systemctl is-enabled plimsoll"), "enabled\n");
    let stated = run(&system, SERVE);
    assert!(stated.contains("\"ready\""), "{stated}");

    run(&system, "dpkg -r plimsoll");
    let left: BTreeSet<String> = system.paths().unwrap().difference(&before).cloned().collect();
    assert_eq!(left, ["/etc/plimsoll", "/etc/plimsoll/plimsoll.toml"].map(str::to_owned).into());
    run(&system, "dpkg -P plimsoll");
    assert_eq!(
        system.paths().unwrap().difference(&before).cloned().collect::<Vec<_>>(),
        Vec::<String>::new()
    );
}

#[test]
fn long_the_deb_is_installed_upgraded_and_removed_in_debian_12() {
    installed_in("bookworm");
}

#[test]
fn long_the_deb_is_installed_upgraded_and_removed_in_debian_13() {
    installed_in("trixie");
}

#[test]
fn long_the_image_runs_without_any_other_system() {
    let folder = tempfile::tempdir().unwrap();
    if built(folder.path()).is_none() {
        return eprintln!("the programs are not built; `cargo xtask test --long` builds them");
    }
    let image = format!("plimsoll-{VERSION}-linux-amd64-oci.tar");
    let unpack = |archive: &Path, into: &Path| {
        let done = Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(into).status().unwrap();
        assert!(done.success(), "{}", archive.display());
    };
    let layout = folder.path().join("layout");
    let system = folder.path().join("system");
    fs::create_dir(&layout).and_then(|()| fs::create_dir(&system)).unwrap();
    unpack(&folder.path().join(image), &layout);
    let parse = |bytes: Vec<u8>| serde_json::from_slice::<Value>(&bytes).unwrap();
    let index = parse(fs::read(layout.join("index.json")).unwrap());
    let manifest = parse(blob(&layout, &index["manifests"][0]));
    for layer in manifest["layers"].as_array().unwrap() {
        let path = folder.path().join("layer.tar.gz");
        fs::write(&path, blob(&layout, layer)).unwrap();
        unpack(&path, &system);
    }
    let card = ["--card", "name=a,total=24GiB,cc=8.9"];
    let output = Command::new("unshare")
        .args(["--map-root-user", "chroot"])
        .arg(&system)
        .args(["/usr/bin/plimsoll", "serve", "--check", "/etc/plimsoll/plimsoll.toml"])
        .args(card)
        .output()
        .unwrap();
    let stated = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stated.contains("/etc/plimsoll/plimsoll.toml contains no model"), "{stated}");
}

#[test]
fn long_the_wheel_is_installed_by_pip_and_removed_with_all_of_its_files() {
    let folder = tempfile::tempdir().unwrap();
    if built(folder.path()).is_none() {
        return eprintln!("the programs are not built; `cargo xtask test --long` builds them");
    }
    let floor = crate::artifacts::newest_glibc(&folder.path().join("from/plimsoll"));
    let wheel = folder.path().join(wheel::name(Architecture::Amd64, floor));
    let environment = folder.path().join("environment");
    let done = |program: &Path, words: &[&str], last: &Path| {
        let output = Command::new(program).args(words).arg(last).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let files = || {
        let list = done(Path::new("find"), &["-L"], &environment);
        list.lines().filter(|path| path.contains("plimsoll")).map(str::to_owned).collect::<Vec<_>>()
    };
    done(Path::new("python3"), &["-m", "venv"], &environment);
    let (pip, program) = (environment.join("bin/pip"), environment.join("bin/plimsoll"));
    done(&pip, &["install", "--no-index"], &wheel);
    assert_eq!(done(&program, &[], Path::new("--version")), format!("plimsoll {VERSION}\n"));
    assert!(files().iter().any(|path| path.ends_with("/lib/plimsoll/libplimsoll_guard.so")));
    done(&pip, &["uninstall", "--yes"], Path::new("plimsoll-gpu"));
    let left: Vec<String> = files().into_iter().filter(|path| !Path::new(path).is_dir()).collect();
    assert_eq!(left, Vec::<String>::new());
}
