//! Computes the occupancy of GPU kernels: how many thread blocks run at the same time on one multiprocessor.
//!
//! It determines the temporary memory of attention. The registers and the shared memory that a kernel uses
//! are read from the engine's machine code.

mod fat_binary;
mod machine_code;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ffi::{CStr, c_char};

use crate::cards::Card;
use crate::system::Lock;

/// Resources of a kernel's machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    /// Registers of a thread.
    pub(crate) registers: u32,
    /// Bytes of shared memory of a block, besides what a launch adds.
    pub(crate) shared: u32,
    /// False for the code of another generation of cards.
    pub(crate) own: bool,
}

struct Kernels {
    /// Address of the fat binary and of the name, by the address of the stub.
    known: BTreeMap<usize, (usize, usize)>,
    /// Code that was looked for, by stub and capability.
    read: BTreeMap<(usize, (u32, u32)), Option<Code>>,
    /// Stubs of kernels whose occupancy was reported as a bound.
    reported: BTreeSet<usize>,
}

static KERNELS: Lock<Kernels> =
    Lock::new(Kernels { known: BTreeMap::new(), read: BTreeMap::new(), reported: BTreeSet::new() });

pub(crate) fn register(host: usize, binary: usize, name: usize) {
    KERNELS.hold().known.insert(host, (binary, name));
}

/// The kernel's mangled name; empty where no kernel has this stub.
pub(crate) fn name(host: usize) -> &'static str {
    let known = KERNELS.hold().known.get(&host).copied();
    known.map_or("", |(_, name)| text(name))
}

/// True for the first time that a kernel is told of.
pub(crate) fn is_new(host: usize) -> bool {
    KERNELS.hold().reported.insert(host)
}

fn text(address: usize) -> &'static str {
    if address == 0 {
        return "";
    }
    // SAFETY: a string of the library that registered it, and no engine unloads its backend.
    let text = unsafe { CStr::from_ptr(core::ptr::with_exposed_provenance::<c_char>(address)) };
    text.to_str().unwrap_or("")
}

/// The code of a kernel for a card; `None` where the engine brings none.
pub(crate) fn code(host: usize, capability: (u32, u32)) -> Option<Code> {
    // DECISION: without code for the card, the nearest generation's code is used, and the report marks this.
    let mut kernels = KERNELS.hold();
    if let Some(read) = kernels.read.get(&(host, capability)) {
        return *read;
    }
    let &(binary, _) = kernels.known.get(&host)?;
    // Every kernel of the same fat binary is looked for: to unpack it takes longer.
    let same: Vec<(usize, &str)> =
        kernels.known.iter().filter(|(_, of)| of.0 == binary).map(|(&host, of)| (host, text(of.1))).collect();
    let names: Vec<&str> = same.iter().map(|(_, name)| *name).collect();
    for ((host, _), code) in same.into_iter().zip(fat_binary::codes(binary, capability, &names)) {
        kernels.read.insert((host, capability), code);
    }
    kernels.read.get(&(host, capability)).copied().flatten()
}

/// Blocks of a kernel on one multiprocessor, as the CUDA occupancy calculator counts them.
pub(crate) fn occupancy(card: &Card, code: Option<Code>, threads: u32, dynamic: u32) -> u32 {
    /// Registers are given to a warp in units of so many, and warps to the four parts of a multiprocessor.
    const UNIT: u32 = 256;
    const PARTS: u32 = 4;
    /// Shared memory is given in units of so many bytes.
    const GRAIN: u32 = 128;
    /// Registers of a thread: a damaged file may say anything.
    const MOST_REGISTERS: u32 = 255;
    let limits = card.limits();
    let warps = threads.div_ceil(32).max(1);
    let by_threads = limits.threads / 32 / warps;
    let shared = code.map_or(0, |code| code.shared).saturating_add(dynamic);
    let by_shared = if shared > limits.opt_in {
        0
    } else {
        limits.shared.checked_div((shared + card.reserved()).next_multiple_of(GRAIN)).unwrap_or(u32::MAX)
    };
    let by_registers = code.filter(|code| code.registers > 0).map_or(u32::MAX, |code| {
        let of_a_warp = (code.registers.min(MOST_REGISTERS) * 32).next_multiple_of(UNIT);
        let warps_at_once = Card::REGISTERS / PARTS / of_a_warp * PARTS;
        warps_at_once / warps
    });
    limits.blocks.min(by_threads).min(by_shared).min(by_registers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most(cc: &str, registers: u32, shared: u32, threads: u32, dynamic: u32) -> u32 {
        let card = &crate::cards::parse(&alloc::format!("total=1,cc={cc}")).unwrap()[0];
        let code = Code { registers, shared, own: true };
        occupancy(card, Some(code), threads, dynamic)
    }

    /// Worked by NVIDIA's published calculator.
    #[test]
    fn blocks_are_bounded_by_what_runs_out_first() {
        assert_eq!(most("9.0", 32, 0, 1024, 0), 2, "threads");
        assert_eq!(most("9.0", 255, 0, 256, 0), 1, "registers");
        assert_eq!(most("9.0", 128, 0, 128, 0), 4, "registers");
        assert_eq!(most("9.0", 16, 0, 32, 0), 32, "blocks");
        assert_eq!(most("8.9", 64, 0, 128, 48 << 10), 2, "shared memory");
        assert_eq!(most("8.9", 64, 1024, 128, 99 << 10), 0, "more than a block may have");
        assert_eq!(most("7.5", 64, 0, 256, 0), 4);
        assert_eq!(
            (most("7.5", 32, 0, 128, 16 << 10), most("8.0", 32, 0, 128, 32 << 10)),
            (4, 4),
            "reserved"
        );
        assert_eq!(most("9.0", u32::MAX, u32::MAX, 128, u32::MAX), 0, "a damaged file");
        assert_eq!(most("9.0", u32::MAX, 0, 128, 0), 2, "a damaged file");
    }

    #[test]
    fn without_code_the_answer_is_no_less() {
        let card = &crate::cards::parse("total=1,cc=9.0").unwrap()[0];
        for threads in [32, 128, 256] {
            for dynamic in [0, 20_000, 90_000] {
                let bound = occupancy(card, None, threads, dynamic);
                assert!(bound >= most("9.0", 200, 0, threads, dynamic));
            }
        }
        assert_eq!(name(1), "");
    }
}
