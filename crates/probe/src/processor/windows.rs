//! Finds out on Windows which instruction sets the processor has, by asking the processor itself.

use std::arch::is_x86_feature_detected as has;
use std::arch::x86_64::{__cpuid, __cpuid_count};

use plimsoll_planner::Processor;

/// The leaf of extended features, and the bits of AMX's tiles and of their 8-bit integers in its EDX (Intel's
/// manual, volume 2A, CPUID).
const EXTENDED: u32 = 7;
const AMX: u32 = 1 << 24 | 1 << 25;

/// The processor of this machine.
pub fn processor() -> Option<Processor> {
    let avx512 =
        has!("avx512f") && has!("avx512bw") && has!("avx512cd") && has!("avx512dq") && has!("avx512vl");
    let amx = has_amx() && has!("avx512vnni");
    Some(Processor { avx2: has!("avx2"), avx512, amx, ..Processor::ASSUMED })
}

/// ggml asks the processor alone for AMX (`cpu-feats.cpp:cpuid_x86 @ b10605`), and so does this.
fn has_amx() -> bool {
    __cpuid(0).eax >= EXTENDED && __cpuid_count(EXTENDED, 0).edx & AMX == AMX
}
