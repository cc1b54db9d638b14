//! Test of read-ahead: a waiting model's files are read while the model that must stop for it still answers.

use std::thread;

use super::unified::{Disk, cached, cool};
use crate::daemon::{Setup, fake_engine, until};
use crate::http::{chat, chat_stream};

const MIB: u64 = 1 << 20;
const LENGTH: u64 = 64 * MIB;

#[test]
fn the_files_of_a_model_that_waits_for_memory_are_cached_before_it_loads() {
    let Some(disk) = Disk::new() else { return };
    let (model, adapter) = (disk.model("tiny.gguf", 1), disk.file("adapter.gguf", LENGTH));
    let daemon = Setup::new()
        .config(&format!("[engine]\ncommand = [\"{}\"]\n", fake_engine().display()))
        .model("busy", "600MiB", "events=200 event_ms=20", "")
        .config(&format!(
            "[models.waits]\nmodel = \"{}\"\nflags = \"--lora {}\"\nmemory = \"600MiB\"\n",
            model.display(),
            adapter.display()
        ))
        .start();
    assert_eq!(chat(daemon.address, "busy").status, 200);
    cool(&adapter);
    thread::scope(|scope| {
        let busy = scope.spawn(|| chat_stream(daemon.address, "busy"));
        until("busy answers", || daemon.status().to_string().contains("\"in_flight\":1"));
        let waits = scope.spawn(|| chat(daemon.address, "waits"));
        daemon.reported("of its files were read while it waited for memory");
        assert!(!busy.is_finished() && !waits.is_finished(), "{}", daemon.talk());
        // The kernel reads further by itself, and that may still be under way.
        until("all of it is cached", || cached(&adapter) == Some(LENGTH));
        assert!(busy.join().expect("it is answered").whole);
        assert_eq!(waits.join().expect("it is answered").status, 200);
    });
}
