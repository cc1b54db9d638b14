//! Tests of the Kubernetes manifests and the systemd unit, without a cluster or a running service.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::daemon::Setup;

/// Schemas up to Kubernetes 1.37, from PyPI.
const VALIDATOR: &str = "kubernetes-validate==1.37.0";

fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes/fleet.yaml")
}

/// The program that validates manifests, fetched once.
fn validator() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let environment = target.join("kubernetes-venv");
    let lock = std::fs::File::create(target.join("kubernetes-venv.lock")).unwrap();
    // Tests run in processes of their own, and one of them fetches.
    lock.lock().unwrap();
    let program = environment.join("bin/kubernetes-validate");
    if !program.exists() {
        let run = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment));
        run(Command::new(environment.join("bin/pip")).args(["install", "--quiet", VALIDATOR]));
    }
    program
}

/// What the validator says of a file, and whether it accepts it.
fn validated(file: &Path) -> (bool, String) {
    let output = Command::new(validator()).arg("--strict").arg(file).output().unwrap();
    let stated =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.success(), stated)
}

#[test]
fn the_manifests_are_valid_and_a_wrong_field_is_found() {
    let (is_valid, stated) = validated(&manifests());
    assert!(is_valid, "{stated}");
    for resource in ["statefulset/etcd", "daemonset/plimsoll", "networkpolicy/etcd"] {
        assert!(stated.contains(&format!("passed for resource {resource}")), "{stated}");
    }
    let wrong = std::fs::read_to_string(manifests()).unwrap().replace("matchLabels", "matchLabel");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fleet.yaml");
    std::fs::write(&file, wrong).unwrap();
    assert!(!validated(&file).0, "the validator accepts a field that is none");
}

/// The configuration inside the manifests is one that this program reads, and its paths are those of the
/// volumes.
#[test]
fn the_configuration_of_the_manifests_is_read() {
    let text = std::fs::read_to_string(manifests()).unwrap();
    let lines = text.lines().skip_while(|line| !line.contains("plimsoll.toml: |")).skip(1);
    let lines: Vec<&str> = lines.take_while(|line| line.is_empty() || line.starts_with("    ")).collect();
    let config = lines.iter().map(|line| format!("{}\n", line.trim_start())).collect::<String>();
    assert!(config.contains("[fleet]") && config.contains("[models."), "{config}");
    for path in ["/etc/plimsoll-keys", "/models"] {
        assert!(config.contains(path) && text.contains(&format!("mountPath: {path},")), "{path}");
    }
    // Everything is read before the key's file, which only the cluster has.
    let refused = Setup::new().config(&config).refused();
    assert!(refused.contains("/etc/plimsoll-keys/fleet-key"), "{refused}");
}
