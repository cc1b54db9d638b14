//! Tests of a child process's start until it is ready, and of failures on the way.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use plimsoll_base::End;
use plimsoll_doctor::Exit;
use plimsoll_engine::{ChildEvent, Readiness, Visible, VisibleCards, child_environment};
use plimsoll_process::LaunchError;
use plimsoll_serve::post_mortem;

use super::rig::{WithProgram, engine, environment, launcher, on_one_thread, shell, start};

#[test]
fn a_llama_server_reports_its_progress_and_its_readiness() {
    on_one_thread(async {
        let mut running = start(&launcher(), engine("load_ms=200")).await;
        let mut progressed = false;
        let payload = loop {
            match running.next().await {
                ChildEvent::Progress(progress) => progressed |= progress["value"].is_number(),
                ChildEvent::Ready(payload) => break payload,
                other => panic!("{other:?}"),
            }
        };
        assert!(progressed);
        assert_eq!(payload["id"], "alpha");
    });
}

#[test]
fn an_engine_without_the_channel_is_asked_over_http() {
    on_one_thread(async {
        for readiness in [
            Readiness::Health { path: "/health".to_owned() },
            // An old llama-server: the channel was offered, and it says nothing.
            Readiness::Control,
        ] {
            let mut spec = engine("");
            spec.environment = environment(&[("PLIMSOLL_FAKE_ENGINE", "load_ms=100")], None);
            spec.readiness = readiness;
            let mut running = start(&launcher(), spec).await;
            running.ready().await;
            running.child.stop(super::rig::LIMIT);
            assert_eq!(running.ended().await.exit, Exit::Code(0));
        }
    });
}

#[test]
fn a_missing_program_is_known_before_anything_starts() {
    let missing = shell("").with_program("/no/such/engine".as_ref());
    assert!(matches!(missing.check(), Err(LaunchError::FindProgram { .. })));
    let closed = tempfile::NamedTempFile::new().unwrap();
    let closed = shell("").with_program(closed.path());
    if !rustix::process::geteuid().is_root() {
        assert!(matches!(closed.check(), Err(LaunchError::NotExecutable { .. })));
    }
    shell("").check().unwrap();
}

#[test]
fn a_program_that_cannot_be_executed_says_why() {
    on_one_thread(async {
        let mut file = tempfile::Builder::new().tempfile().unwrap();
        file.write_all(b"#!/no/such/interpreter\n").unwrap();
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = file.into_temp_path();
        let mut spec = shell("").with_program(&path);
        spec.readiness = Readiness::Control;
        let mut running = start(&launcher(), spec).await;
        let ended = running.ended().await;
        assert_eq!(ended.exit, Exit::Code(127));
        let End::Unstartable { reason, lasts: true } = post_mortem("alpha", &ended, None).end else {
            panic!("{ended:?}");
        };
        assert!(reason.to_string().contains("No such file or directory"), "{reason}");
    });
}

#[test]
fn a_child_sees_its_own_cards_and_nothing_of_the_daemon() {
    on_one_thread(async {
        let mut spec = shell("env");
        spec.environment = child_environment(
            [
                ("PATH", "/usr/bin:/bin"),
                ("CUDA_VISIBLE_DEVICES", "0,1,2,3"),
                ("LLAMA_API_KEY", "secret of the daemon"),
            ]
            .map(|(name, value)| (name.into(), value.into())),
            &[],
            &Visible::Cards(VisibleCards { cuda: vec!["GPU-2".to_owned()], ..VisibleCards::default() }),
            None,
            None,
        );
        let mut running = start(&launcher(), spec).await;
        let lines = running.ended().await.last_lines;
        assert!(lines.contains(&"CUDA_VISIBLE_DEVICES=GPU-2".to_owned()), "{lines:?}");
        assert!(lines.contains(&"CUDA_DEVICE_ORDER=PCI_BUS_ID".to_owned()));
        assert!(!lines.iter().any(|line| line.contains("secret")));
    });
}
