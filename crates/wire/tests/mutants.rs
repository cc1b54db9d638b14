//! Fuzz tests of the readers of shared-memory files that other processes write, with mutated files: none may
//! panic.

use plimsoll_fuzz::mutants;
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
