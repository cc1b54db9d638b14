//! Tests of guard (the preloaded library) in engines that run as another user, for root only.
#![allow(clippy::print_stderr, reason = "a test that cannot run says why")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::guarded::{deep, model, one_card, refusal};
use super::sockets::engine_for_everybody;
use crate::built::built;
use crate::daemon::{Daemon, Setup, until};
use crate::http::{chat, get};
use crate::pages::real::guard;

const MIB: u64 = 1 << 20;
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can start engines as another user");
    }
    root
}

/// A folder with an engine, a driver and a guard library that every user may read.
struct Place {
    folder: TempDir,
    engine: PathBuf,
    library: PathBuf,
}

impl Place {
    fn new() -> Self {
        let (folder, engine) = engine_for_everybody();
        let copy = |from: &Path, name: &str| {
            let to = folder.path().join(name);
            fs::copy(from, &to).expect("there is room");
            to
        };
        copy(&built("libplimsoll_fake_cuda.so", "fake-cuda"), "libcuda.so.1");
        let library = copy(guard(), "libplimsoll_guard.so");
        Self { folder, engine, library }
    }

    fn daemon(&self, library: &Path) -> Daemon {
        let folder = self.folder.path().display();
        // The processes of the card find each other through a file that all of them write.
        fs::create_dir(self.folder.path().join("card")).expect("it is ours");
        fs::set_permissions(self.folder.path().join("card"), Permissions::from_mode(0o777))
            .expect("it is ours");
        let words = format!(
            "uuids=GPU-00000001-0000-0000-0000-000000000000 total=8G context=64M shared={folder}/card/shared"
        );
        let config = format!(
            "[serve]\nengine-user = \"nobody\"\n[models.alpha]\ncmd = \"{} --port ${{PORT}} --alias alpha\"\nmemory = \"2GiB\"\n\
             guard = {{ budget = \"1GiB\" }}\n\
             env = {{ PLIMSOLL_FAKE_ENGINE = \"cuda=1 vram={} vram_per_token=65536\" }}\n",
            self.engine.display(),
            512 * MIB
        );
        let setup = Setup::with_cards(&[])
            .config(&config)
            .variable("LD_LIBRARY_PATH", &folder.to_string())
            .variable("CUDA_FAKE", &words);
        one_card(setup, library)
    }
}

fn user_of(pid: u32) -> u32 {
    fs::metadata(format!("/proc/{pid}")).expect("it runs").uid()
}

#[test]
fn pages_and_budgets_hold_for_engines_of_another_user() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let daemon = place.daemon(&place.library);
    let answer = deep(&daemon, "alpha", 1000);
    assert_eq!(answer.status, 200, "{}\n{}", answer.text(), get(daemon.address, "/logs").text());
    assert_eq!(user_of(daemon.engines()[0]), NOBODY);
    until("its page is measured", || {
        let measured = model(&daemon.status(), "alpha")["measured"][0]["bytes"].as_u64();
        measured.is_some_and(|bytes| (512 * MIB..1024 * MIB).contains(&bytes))
    });
    let environment = get(daemon.address, "/upstream/alpha/fake/env").json()["env"].clone();
    let pages = PathBuf::from(environment["PLIMSOLL_GUARD_PAGES"].as_str().expect("a path"));
    let about = fs::metadata(&pages).expect("it is there");
    assert_eq!((about.uid(), about.mode() & 0o777), (NOBODY, 0o700));
    assert_eq!(environment["PLIMSOLL_GUARD_TRACE"], Value::Null);
    // 20 000 tokens are 1250 MiB; the budget is 1 GiB.
    let answer = deep(&daemon, "alpha", 20_000);
    assert_eq!(answer.status, 503, "{}", answer.text());
    let facts = refusal(&answer)["facts"].clone();
    assert_eq!((&facts["verdict"], &facts["budget"]), (&json!("budget"), &json!(1024 * MIB)), "{facts}");
    until("the pages went with the engine", || !pages.exists());
}

#[test]
fn a_library_that_the_engines_user_cannot_read_is_reported_and_not_preloaded() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let closed = tempfile::tempdir_in("/var").expect("root may write there");
    fs::set_permissions(closed.path(), Permissions::from_mode(0o700)).expect("it is ours");
    let library = closed.path().join("libplimsoll_guard.so");
    fs::copy(guard(), &library).expect("there is room");
    let daemon = place.daemon(&library);
    assert_eq!(chat(daemon.address, "alpha").status, 200);
    daemon.reported(&format!("neither counted nor limited: user nobody cannot read {}", library.display()));
    let environment = get(daemon.address, "/upstream/alpha/fake/env").json()["env"].clone();
    assert_eq!(environment["LD_PRELOAD"], Value::Null);
}
