//! Finds out on Windows which instruction sets the processor has, by asking the processor itself.

use std::arch::is_x86_feature_detected as has;

use plimsoll_planner::Processor;

/// The processor of this machine. Whether it has AMX, no stable call says.
pub fn processor() -> Option<Processor> {
    let avx512 =
        has!("avx512f") && has!("avx512bw") && has!("avx512cd") && has!("avx512dq") && has!("avx512vl");
    Some(Processor { avx2: has!("avx2"), avx512, ..Processor::ASSUMED })
}
