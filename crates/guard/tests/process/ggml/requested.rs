//! Tests of requests from another process to release the idle memory of ggml's pool.

use super::{Loaded, artefact, command};
use crate::runner::dialogue::Dialogue;

#[test]
fn idle_pool_memory_is_released_outside_captures_except_blocks_of_live_graphs() {
    for card in ["total=8G", "total=8G vmm=0"] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut program = command(Loaded::Opened, "asked");
        program
            .env("LD_LIBRARY_PATH", artefact::cuda())
            .env("LD_PRELOAD", artefact::guard())
            .env("PLIMSOLL_FAKE_CUDA", format!("{card} log={}", log.display()))
            .env("PLIMSOLL_GUARD", "pool=ours")
            .env("PLIMSOLL_GUARD_PAGES", folder.path());
        let mut program = Dialogue::start(&mut program, folder.path());
        let number = |stated: String| -> u64 { stated.parse().unwrap() };

        let idle = number(program.hear("stopped"));
        program.ask(1);
        program.go_on();
        let captured = number(program.hear("captured"));
        assert!(captured >= idle, "{card}: {idle} {captured}");
        let replayed = number(program.hear("replayed"));
        assert!(replayed + 170 <= idle, "{card}: {idle} {replayed}");
        program.hear("stopped");
        let (page, card_now) = (program.page(), program.card());
        assert_eq!(card_now.answered, 1, "{card}");
        assert!(page.given_back >= 170 << 20, "{card}: {}", page.given_back);
        assert!(card_now.reserved >= 20 << 20, "the graph's are there still: {card}");

        program.ask(2);
        program.go_on();
        let freed = number(program.hear("freed"));
        assert!(freed <= replayed + 10, "{card}: {replayed} {freed}");
        program.hear("stopped");
        assert_eq!(program.card().answered, 2, "{card}");

        program.ask(3);
        program.go_on();
        let unpinned = number(program.hear("unpinned"));
        assert!(unpinned + 20 <= freed, "{card}: {freed} {unpinned}");
        assert!(program.end().success());
        let log = std::fs::read_to_string(log).unwrap();
        assert!(!log.contains(" violation "), "{log}");
    }
}
