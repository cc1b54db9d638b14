//! Tests of the confinement of engines, by the rights that the confined process itself reports.

use std::os::unix::fs::PermissionsExt;

use plimsoll_process::confinement::{Confinement, EngineUser};
use rustix::process::getuid;

use super::rig::{launcher, on_one_thread, shell, start};

/// The lines that a confined shell writes.
fn stated(script: &str, confinement: Confinement) -> Vec<String> {
    on_one_thread(async {
        let mut spec = shell(script);
        spec.confinement = confinement;
        let mut running = start(&launcher(), spec).await;
        running.ended().await;
        let lines = running.child.log().tail(100);
        lines.iter().map(|line| line.text.clone()).collect()
    })
}

#[test]
fn no_engine_leaves_a_core_dump() {
    assert_eq!(stated("ulimit -c; ulimit -Hc", Confinement::default()), ["0", "0"]);
}

#[test]
fn no_program_that_a_confined_engine_starts_has_more_rights_than_it() {
    let script = "grep NoNewPrivs /proc/self/status";
    for (no_new_privileges, bit) in [(true, "1"), (false, "0")] {
        let confinement = Confinement { no_new_privileges, ..Confinement::default() };
        assert_eq!(stated(script, confinement), [format!("NoNewPrivs:\t{bit}")]);
    }
}

#[test]
fn short_lived_files_of_an_engine_are_its_own() {
    let folder = tempfile::tempdir_in("/var").or_else(|_| tempfile::tempdir()).unwrap();
    std::fs::create_dir(folder.path().join("tmp")).unwrap();
    let confinement = Confinement { folder: Some(folder.path().to_owned()), ..Confinement::default() };
    // As root it has a private /tmp; where the machine refuses that, TMPDIR names the folder.
    let script = "t=${TMPDIR:-/tmp}; echo secret > $t/of-engine; ls $t | head -1; test -w $0 || true";
    let lines = stated(script, confinement);
    assert_eq!(lines.last().map(String::as_str), Some("of-engine"), "{lines:?}");
    assert!(folder.path().join("tmp/of-engine").exists());
    assert!(!std::path::Path::new("/tmp/of-engine").exists());
}

#[test]
fn a_private_tmp_keeps_the_folder_of_the_socket_and_hides_the_rest() {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::create_dir(folder.path().join("tmp")).unwrap();
    std::fs::write(folder.path().join("engine.sock"), "").unwrap();
    let neighbour = tempfile::NamedTempFile::new_in("/tmp").unwrap();
    let name = neighbour.path().file_name().unwrap().to_str().unwrap().to_owned();
    let confinement = Confinement { folder: Some(folder.path().to_owned()), ..Confinement::default() };
    let own = folder.path().display();
    let script =
        format!("ls {own}; echo TMPDIR=$TMPDIR; cd /tmp; test -e {name} && echo seen || echo hidden");
    let lines = stated(&script, confinement);
    assert!(lines.iter().any(|line| line == "engine.sock"), "{lines:?}");
    let has_mount = lines.iter().any(|line| line == "TMPDIR=");
    if has_mount {
        assert_eq!(lines.last().map(String::as_str), Some("hidden"), "{lines:?}");
    } else {
        // A variable that names a file below /tmp, such as PATH in a checkout there, keeps the machine's
        // /tmp.
        let is_named = std::env::vars_os().any(|(_, value)| value.to_string_lossy().contains("/tmp/"));
        let is_refused = lines.iter().any(|line| line.contains("not permitted: a private /tmp"));
        assert!(is_named || is_refused, "{lines:?}");
        assert!(lines.contains(&format!("TMPDIR={own}/tmp")), "{lines:?}");
    }
}

#[test]
fn an_engine_of_another_user_has_none_of_the_daemons_rights() {
    if !getuid().is_root() {
        // Only root may start one; the unit tests hold the refusal.
        return;
    }
    let nobody = EngineUser::find("nobody").unwrap();
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::set_permissions(secret.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    let script = format!(
        "id -u; id -G; grep -E 'CapEff|CapBnd|CapPrm' /proc/self/status; cat {} 2>/dev/null && echo read; kill -0 {} 2>/dev/null && echo reached; true",
        secret.path().display(),
        std::process::id()
    );
    let confinement =
        Confinement { user: Some(nobody.clone()), no_new_privileges: true, ..Confinement::default() };
    let lines = stated(&script, confinement);
    assert_eq!(lines[0], nobody.uid.to_string(), "{lines:?}");
    assert!(!lines[1].split(' ').any(|group| group == "0"), "{lines:?}");
    assert!(lines.contains(&"CapEff:\t0000000000000000".to_owned()), "{lines:?}");
    assert!(lines.contains(&"CapPrm:\t0000000000000000".to_owned()), "{lines:?}");
    assert!(!lines.iter().any(|line| line == "read" || line == "reached"), "{lines:?}");
}

#[test]
fn an_engine_of_another_user_still_dies_with_the_daemon() {
    if !getuid().is_root() {
        return;
    }
    // The kernel takes the parent-death signal back when a process changes its user.
    let confinement =
        Confinement { user: Some(EngineUser::find("nobody").unwrap()), ..Confinement::default() };
    let script = "exec python3 -c 'import ctypes; s = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(s)); print(s.value)'";
    assert_eq!(stated(script, confinement), ["9"]);
}
