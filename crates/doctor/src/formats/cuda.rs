//! Reader of the NVIDIA driver's Xid error codes in logs.

use crate::facts::{Facts, Quote};
use crate::pattern::Pattern;
use crate::sizes::{behind, count, count_after};

pub(super) fn read(facts: &mut Facts, pattern: Pattern, text: &str, quote: &Quote) {
    if pattern != Pattern::Xid {
        return;
    }
    // `NVRM: Xid (PCI:0000:07:00): 31, pid=…`; reports shorten it to `Xid 79`.
    let code = behind(text, "xid (")
        .and_then(|rest| rest.split_once("): "))
        .and_then(|(_, rest)| count(rest))
        .or_else(|| count_after(text, "xid"));
    if let Some(code) = code.filter(|code| *code < 1000) {
        facts.add_xid(code, quote);
    }
}
