//! Tests of the takeover of ggml's legacy pool, for every way in which ggml can be loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use plimsoll_wire::page::PageSnapshot;
use plimsoll_wire::trace::{TraceHeader, TraceKind, TraceRecord};

use crate::runner::artefact::{self, Compiled};

mod hip;
mod requested;

/// How the class gets into the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loaded {
    /// A shared library that the program is linked with.
    Linked,
    /// A shared library that the program opens for itself alone, as ggml opens its backends.
    Opened,
    /// In the executable, which exports its symbols.
    Exported,
    /// In the executable, whose symbols stand in its file and nowhere in memory.
    Inside,
    /// In a library that does not export it and was stripped.
    Stripped,
    /// As `Opened`, and the class has a method more.
    Moved,
}

const FOUND: [Loaded; 5] = [Loaded::Linked, Loaded::Opened, Loaded::Exported, Loaded::Inside, Loaded::Moved];

/// What a run of the program said and left behind.
#[derive(Debug)]
struct Run {
    stated: BTreeMap<String, String>,
    complaints: String,
    log: String,
    code: Option<i32>,
}

impl Run {
    fn number(&self, key: &str) -> u64 {
        let value = self.stated.get(key).unwrap_or_else(|| panic!("no {key} in {self:?}"));
        value.parse().expect("the program prints numbers")
    }

    fn calls(&self, function: &str) -> usize {
        let call = format!(" call {function}(");
        self.log.lines().filter(|line| line.contains(&call)).count()
    }

    /// Nothing went wrong, for the program or for the card.
    fn clean(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        assert!(!self.log.contains(" violation "), "{}", self.log);
        self
    }

    /// And guard had nothing to say.
    fn quiet(self) -> Self {
        assert_eq!(self.complaints, "");
        self.clean()
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/ggml").join(name)
}

fn compile(out: &Path, sources: &[&str], flags: &[&str]) {
    let mut compiled = Compiled::at(out.to_path_buf());
    if compiled.is_fresh() {
        return;
    }
    let mut command = Command::new(if sources == ["odd.c"] { "cc" } else { "c++" });
    // Speculative devirtualisation is part of -O2, and part of what is tested.
    command.args(["-O2", "-g", "-Wall", "-Werror", "-pthread"]);
    command.args(sources.iter().map(|name| source(name))).arg("-o").arg(&compiled.draft).args(flags);
    compiled.by(&mut command);
}

/// The folder with the program in all its forms, compiled once.
fn programs() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = artefact::target().join("guard-tests/ggml");
        std::fs::create_dir_all(&folder).expect("the target folder is writable");
        let at = |name: &str| folder.join(name);
        let here = format!("-L{}", folder.display());
        let (backend, program): (&[&str], &[&str]) = (&["backend.cpp"], &["program.cpp"]);
        let both: &[&str] = &["program.cpp", "backend.cpp"];
        compile(&at("libbackend.so"), backend, &["-fPIC", "-shared"]);
        compile(&at("libmoved.so"), backend, &["-fPIC", "-shared", "-DSHAPE=1"]);
        compile(&at("libstripped.so"), backend, &["-fPIC", "-shared", "-fvisibility=hidden", "-s"]);
        compile(&at("libodd.so"), &["odd.c"], &["-fPIC", "-shared"]);
        compile(&at("opened"), program, &["-DLOCAL"]);
        compile(&at("linked"), program, &[&here, "-lbackend", "-Wl,-rpath,$ORIGIN"]);
        compile(
            &at("odd"),
            both,
            &[&here, "-fvisibility=hidden", "-Wl,--no-as-needed", "-lodd", "-Wl,-rpath,$ORIGIN", "-s"],
        );
        compile(&at("exported"), both, &["-rdynamic"]);
        compile(&at("inside"), both, &[]);
        folder
    })
}

fn command(loaded: Loaded, scenario: &str) -> Command {
    let (program, library) = match loaded {
        Loaded::Linked => ("linked", None),
        Loaded::Opened => ("opened", Some("libbackend.so")),
        Loaded::Exported => ("exported", None),
        Loaded::Inside => ("inside", None),
        Loaded::Stripped => ("opened", Some("libstripped.so")),
        Loaded::Moved => ("opened", Some("libmoved.so")),
    };
    let mut command = Command::new(programs().join(program));
    command.arg(scenario).args(library.map(|name| programs().join(name)));
    command
}

/// Runs the program, guarded with these words if there are any, on a card as `card` describes it.
fn run(mut command: Command, words: Option<&str>, card: &str) -> Run {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let log = folder.path().join("log");
    command
        .env("LD_LIBRARY_PATH", artefact::cuda())
        .env("PLIMSOLL_FAKE_CUDA", format!("{card} log={}", log.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(words) = words {
        command.env("LD_PRELOAD", artefact::guard()).env("PLIMSOLL_GUARD", words);
    }
    let output = finished(command);
    let text = String::from_utf8(output.stdout).expect("the program prints text");
    let stated = text.lines().filter_map(|line| line.split_once(' '));
    Run {
        stated: stated.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        complaints: String::from_utf8(output.stderr).expect("guard says text"),
        log: std::fs::read_to_string(&log).unwrap_or_default(),
        code: output.status.code(),
    }
}

fn finished(mut command: Command) -> std::process::Output {
    let mut child = command.spawn().expect("the program was compiled");
    let end = Instant::now() + Duration::from_secs(120);
    while child.try_wait().expect("it is our child").is_none() {
        if Instant::now() > end {
            child.kill().expect("it is our child");
            panic!("{command:?} did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("it is our child")
}

fn ours(loaded: Loaded, scenario: &str) -> Run {
    run(command(loaded, scenario), Some("pool=ours"), "total=8G")
}

fn bare(loaded: Loaded, scenario: &str) -> Run {
    run(command(loaded, scenario), None, "total=8G")
}

#[test]
fn growth_stays_close_to_what_is_live_however_ggml_is_loaded() {
    let before = bare(Loaded::Opened, "grow").clean();
    assert!(before.number("reserved") > 16 * before.number("live"), "{before:?}");
    for loaded in FOUND {
        let run = ours(loaded, "grow").quiet();
        let live = run.number("live");
        assert!(run.number("reserved") <= live + live / 16 + 2, "{loaded:?} {run:?}");
        assert_eq!(run.number("left"), 0, "{loaded:?}");
        assert!(run.calls("cuMemCreate") > 10);
    }
}

#[test]
fn a_real_prompt_takes_two_hundredths_more_than_what_was_live_of_it_in_few_calls() {
    let recording = artefact::root().join("data/traces/b8799-q8_0-distinct.csv");
    let replayed = |words| {
        let mut program = command(Loaded::Opened, "replay");
        program.env("RECORDING", &recording);
        run(program, words, "total=8G").quiet()
    };
    let before = replayed(None);
    assert_eq!(before.number("live"), 240);
    assert!(before.number("reserved") > 16 * 240, "{before:?}");
    let served = replayed(Some("pool=ours"));
    assert!((240..=244).contains(&served.number("reserved")), "{served:?}");
    // To the granule it would be 120.
    assert!(served.calls("cuMemCreate") < 50, "{served:?}");
    // Where there is no room for more than what is live, no more is taken: 241 MiB.
    let tight = replayed(Some("pool=ours budget=252706816"));
    assert_eq!(tight.number("reserved"), 240, "{tight:?}");
}

#[test]
fn without_virtual_memory_the_pool_is_still_bounded() {
    // There is none, or the driver says that there is and refuses it.
    for card in ["total=8G vmm=0", "total=8G fail=cuMemCreate:*:800"] {
        let run = run(command(Loaded::Opened, "grow"), Some("pool=ours"), card).quiet();
        assert!(run.number("reserved") <= run.number("live") * 5 / 4 + 32, "{run:?}");
        assert_eq!(run.number("left"), 0);
        assert_eq!(run.calls("cuMemMap"), 0);
    }
}

#[test]
fn stripped_pool_stays_unreplaced_with_one_warning() {
    let before = bare(Loaded::Stripped, "grow").clean();
    let run = ours(Loaded::Stripped, "grow").clean();
    assert_eq!(run.stated, before.stated);
    assert_eq!(
        run.complaints,
        "plimsoll guard: ggml's legacy pool is not replaced yet: the program has not loaded it, or its symbols are stripped\n"
    );
}

#[test]
fn a_vtable_that_is_not_what_it_is_called_is_left_alone() {
    let mut odd = Command::new(programs().join("odd"));
    odd.arg("grow");
    let run = run(odd, Some("pool=ours"), "total=8G").clean();
    assert!(run.number("reserved") > 16 * run.number("live"));
    assert_eq!(
        run.complaints,
        "plimsoll guard: ggml's legacy pool is not replaced, because its layout is unknown\n"
    );
}

#[test]
fn without_the_option_the_driver_sees_the_same_calls() {
    let before = bare(Loaded::Opened, "again").clean();
    let run = run(command(Loaded::Opened, "again"), Some(""), "total=8G").quiet();
    assert_eq!(run.stated, before.stated);
    assert_eq!(run.calls("cuMemAlloc_v2"), before.calls("cuMemAlloc_v2"));
    assert_eq!(run.calls("cuMemCreate"), 0);
}

#[test]
fn no_two_blocks_share_a_byte() {
    for card in ["total=8G", "total=8G vmm=0"] {
        let run = run(command(Loaded::Opened, "pattern"), Some("pool=ours"), card).quiet();
        assert_eq!(run.stated["pattern"], "kept");
    }
}

#[test]
fn pools_come_and_go_and_leave_nothing() {
    for loaded in [Loaded::Linked, Loaded::Inside] {
        assert_eq!(ours(loaded, "again").quiet().number("left"), 0);
    }
}

#[test]
fn fifty_prompts_do_not_drift() {
    let run = ours(Loaded::Opened, "cycles").quiet();
    assert_eq!((run.number("last"), run.number("most")), (run.number("first"), run.number("first")));
}

#[test]
fn blocks_seen_by_a_graph_are_released_after_its_destruction() {
    for card in ["total=8G", "total=8G vmm=0"] {
        let run = run(command(Loaded::Opened, "graph"), Some("pool=ours reuse"), card).clean();
        assert_eq!(run.number("refused"), 2);
        let (before, after) = (run.number("before"), run.number("after"));
        assert!(after < before, "what the graph has not seen goes: {run:?}");
        assert!(run.number("unpinned") + 20 <= after, "{run:?}");
    }
}

#[test]
fn a_pool_that_ends_during_a_capture_is_given_back_after_it() {
    assert_eq!(ours(Loaded::Opened, "ending").quiet().number("left"), 0);
}

#[test]
fn idle_blocks_give_way_to_the_program_within_its_budget() {
    let budget = format!("budget={} pool=ours", 500 << 20);
    let refused = run(command(Loaded::Opened, "pressure"), Some(&budget), "total=8G").clean();
    assert_eq!(refused.number("other"), 2);
    let given =
        run(command(Loaded::Opened, "pressure"), Some(&format!("{budget} reuse")), "total=8G").clean();
    assert_eq!(given.number("other"), 0);
}

#[test]
fn the_pool_keeps_to_the_budget_and_the_program_learns_that_it_is_spent() {
    let budget = format!("budget={} pool=ours", 200 << 20);
    let run = run(command(Loaded::Opened, "grow"), Some(&budget), "total=8G");
    assert_eq!(run.code, None, "as without guard, the program aborts: {run:?}");
    assert!(run.complaints.contains("cuMemAlloc: CUDA error 2"), "{run:?}");
}

#[test]
fn resting_pool_memory_is_released_during_execution() {
    for card in ["total=8G delay=50", "total=8G vmm=0"] {
        let run = run(command(Loaded::Opened, "rest"), Some("pool=ours"), card).quiet();
        assert!(run.number("after") < 15, "{run:?}");
        assert!(run.number("gone") > 200, "{run:?}");
    }
}

#[test]
fn the_page_says_what_the_pools_hold() {
    let pages = tempfile::tempdir().unwrap();
    let mut program = command(Loaded::Opened, "leave");
    program.env("PLIMSOLL_GUARD_PAGES", pages.path());
    run(program, Some("pool=ours"), "total=8G").quiet();
    let files = std::fs::read_dir(pages.path()).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    // The ledger lies beside it.
    let page = files.find(|path| path.extension().is_some_and(|kind| kind == "page"));
    let snapshot = PageSnapshot::read(&std::fs::read(page.unwrap()).unwrap()).unwrap();
    let card = &snapshot.cards()[0];
    // Two blocks of 8 MiB are idle, and 3 MiB in use, in granules of 2 MiB.
    assert_eq!(snapshot.pools, 1);
    assert_eq!((card.reserved, card.idle), (18 << 20, (18 << 20) - (3 << 20)));
    assert!(card.allocated >= card.reserved);
}

/// The trace of a run, in the order in which it was written.
fn traced(scenario: &str) -> Vec<TraceRecord> {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let mut program = command(Loaded::Opened, scenario);
    program.env("PLIMSOLL_GUARD_TRACE", folder.path().join("trace"));
    run(program, Some("pool=ours"), "total=8G").clean();
    let mut files = std::fs::read_dir(folder.path()).expect("the folder is ours");
    let file = files.next().expect("a trace was written").expect("the folder is ours");
    let bytes = std::fs::read(file.path()).expect("the trace is ours");
    let (records, rest) = bytes[TraceHeader::SIZE..].as_chunks();
    assert_eq!(rest, &[] as &[u8]);
    records.iter().map(TraceRecord::from_bytes).collect()
}

#[test]
fn the_trace_distinguishes_a_pool_from_the_driver() {
    let records = traced("again");
    let of =
        |kind: TraceKind| records.iter().filter(move |record| record.kind == kind.code() && record.pool > 0);
    let bytes = |kind| of(kind).map(|record| record.size).sum::<u64>();
    assert!(of(TraceKind::Alloc).count() > 50);
    assert_eq!(bytes(TraceKind::Alloc), bytes(TraceKind::Free));
    assert!(bytes(TraceKind::Map) > 0);
    assert_eq!(bytes(TraceKind::Map), bytes(TraceKind::Unmap));
    let numbers: BTreeSet<u64> = of(TraceKind::Alloc).map(|record| record.id).collect();
    assert_eq!(numbers.len(), of(TraceKind::Alloc).count());
    assert_eq!(numbers, of(TraceKind::Free).map(|record| record.id).collect());
    assert_eq!(of(TraceKind::Alloc).map(|record| record.pool).max(), Some(10));
}

#[test]
fn the_trace_names_a_graph_by_its_capture() {
    let records = traced("graph");
    let number = |kind: TraceKind| -> Vec<u64> {
        let of = records.iter().filter(|record| record.kind == kind.code());
        of.map(|record| record.id).collect()
    };
    let begun = number(TraceKind::CaptureBegin);
    assert!(begun.len() == 1 && begun[0] != 0);
    assert_eq!(number(TraceKind::CaptureEnd), begun);
    assert_eq!(number(TraceKind::GraphLaunch), [begun[0], begun[0]]);
}

#[test]
fn a_library_that_is_closed_and_opened_again_is_found_again() {
    let run = ours(Loaded::Opened, "reopen").quiet();
    assert_eq!(run.stated["gone"], "1");
    // Each time the pool is ours from its first block on: a granule is mapped to see whether it can be, and
    // one for the block.
    assert_eq!(run.calls("cuMemMap"), 4 * 2);
}

#[test]
fn threads_do_not_meet() {
    let words = Some("pool=ours reuse");
    let run = run(command(Loaded::Opened, "threads"), words, "total=8G").clean();
    assert_eq!(run.stated["kept"], "yes");
}

#[test]
fn a_caller_that_found_only_one_of_the_two_methods_survives() {
    for loaded in [Loaded::Linked, Loaded::Inside] {
        let run = ours(loaded, "half").clean();
        assert_eq!(run.stated["survived"], "yes");
    }
}

#[test]
fn a_takeover_whose_blocks_never_come_back_is_undone() {
    let run = ours(Loaded::Opened, "never_freed").clean();
    assert_eq!(run.stated["survived"], "yes");
    assert_eq!(run.complaints.lines().count(), 2, "{}", run.complaints);
    assert!(run.complaints.contains(
        "not replaced: the program does not return the pool's blocks to guard; the program continues with"
    ));
}
