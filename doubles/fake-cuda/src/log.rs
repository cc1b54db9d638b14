//! Writes the log of a program's calls to the fake driver: one line for each call, and one for each violated
//! rule.
//!
//! ```text
//! PID:THREAD call FUNCTION(NAME=VALUE, …) = CODE
//! PID:THREAD violation RULE: what happened
//! ```
//!
//! THREAD numbers the threads of the process in the order of their first line. Each line is one `write` to a
//! file opened for append, so processes can share the file, and a killed process leaves whole lines.

use std::cell::Cell;
use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::settings::settings;

fn file() -> Option<&'static File> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    FILE.get_or_init(|| {
        let path = settings().log.as_ref()?;
        File::options().create(true).append(true).open(path).ok()
    })
    .as_ref()
}

pub(crate) fn is_kept() -> bool {
    file().is_some()
}

/// Notes a rule that the program broke, though the call itself may have gone well.
pub(crate) fn violation(rule: &str, what: impl Display) {
    write(format_args!("violation {rule}: {what}"));
}

pub(crate) fn write(line: impl Display) {
    let Some(mut file) = file() else { return };
    let line = format!("{}:{} {line}\n", std::process::id(), thread());
    let _ = file.write_all(line.as_bytes());
}

/// The number of this thread.
pub(crate) fn thread() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    thread_local!(static NUMBER: Cell<u32> = const { Cell::new(0) });
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        }
        number.get()
    })
}

#[cfg(test)]
mod tests {
    use crate::alone::{alone, code, get, start};
    use crate::linear::{cuMemAlloc_v2, cuMemFree_v2, cuMemGetInfo_v2};

    #[test]
    fn each_call_is_a_line_with_its_arguments_and_results() {
        let log = alone("total=1G context=24M", || {
            start();
            let at = get(|at| cuMemAlloc_v2(at, 4 << 20));
            assert_eq!(code(|at| cuMemAlloc_v2(at, 2 << 30)).0, 2);
            get(|free| cuMemGetInfo_v2(free, crate::abi::Out::nowhere()));
            cuMemFree_v2(at);
        });
        let expected = [
            "call cuInit(Flags=0) = 0",
            "call cuDevicePrimaryCtxRetain(pctx=&0x1010, dev=0) = 0",
            "call cuCtxSetCurrent(ctx=0x1010) = 0",
            "call cuMemAlloc_v2(dptr=&0x200000000000, bytesize=4194304) = 0",
            "call cuMemAlloc_v2(dptr=&, bytesize=2147483648) = 2",
            "call cuMemGetInfo_v2(free=&1044381696, total=null) = 0",
            "call cuMemFree_v2(dptr=0x200000000000) = 0",
        ];
        assert_eq!(log, expected);
    }
}
