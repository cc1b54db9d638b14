//! Files that other processes write: guard's pages, traces, recordings of memory.

use plimsoll_fuzz::mutants;
use plimsoll_telemetry::record::{About, Encoder, Figure, Group, Look, Pace, Source, Unit, summarise};
use plimsoll_traces::trace::Trace;
use plimsoll_wire::page::PageSnapshot;
use plimsoll_wire::tree::TreeSnapshot;

#[test]
fn million_pages_of_guard() {
    // The head of a page; what follows is zero in a new one.
    let mut page = b"PLIMPAGE".to_vec();
    page.resize(8192, 0);
    let short = vec![0xFF; 4096];
    mutants(&[&page, &short], &[b"PLIMPAGE", &[1, 0, 0, 0], &[255; 8]], |mutant| {
        if let Ok(page) = PageSnapshot::read(mutant) {
            assert!(page.cards().len() <= 64 && page.ooms().count() <= 4096);
        }
    });
}

#[test]
fn million_ledgers_of_guard() {
    let mut ledger = [7_u64, 1 << 30, 1 << 20].into_iter().flat_map(u64::to_ne_bytes).collect::<Vec<u8>>();
    ledger.resize(TreeSnapshot::SIZE + 64, 0);
    mutants(&[&ledger], &[&[7, 0, 0, 0, 0, 0, 0, 0], &[0; 64], &[255; 8]], |mutant| {
        let Some(tree) = TreeSnapshot::read(mutant) else {
            assert!(mutant.len() < TreeSnapshot::SIZE);
            return;
        };
        for key in [0, 7, u64::MAX] {
            let _ = tree.card(key);
            assert!(tree.budget_offset(key).is_none_or(|offset| offset + 8 <= TreeSnapshot::SIZE));
        }
    });
}

#[test]
fn million_traces_of_allocators() {
    let csv = b"Thread,Time,Action,Pointer,Size,Stream\n1,10,allocate,0x10,256,0\n1,11,free,0x10,256,0\n1,12,allocate failure,0x0,99,0\n";
    mutants(&[csv], &[b"allocate", b"free", b"0x", b",,"], |mutant| {
        let _ = Trace::from_csv(mutant);
        if Trace::is_record(mutant) {
            let _ = Trace::from_record(mutant, None);
        }
    });
}

#[test]
fn million_recordings() {
    let mut record = Vec::new();
    let mut encoder = Encoder::begin(&About::default(), &mut record);
    let mut look = Look::default();
    for time in 0..6 {
        look.push(Figure::new(Group::Card, Unit::Bytes, "GPU-aaaa", "used"), Pace::Fast, time << 30);
        encoder.sample(time * 100, &look, &mut record);
        encoder.event(time * 100, Source::Kernel, "NVRM: out of memory", &mut record);
    }
    encoder.end(700, "0", &mut record);
    assert!(summarise(&record).is_ok());
    mutants(&[&record], &[&[0x80; 9], &[0xFF; 4], b"{}"], |mutant| drop(summarise(mutant)));
}
