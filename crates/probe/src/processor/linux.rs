//! Finds out which instruction sets this machine's processor has, from `/proc/cpuinfo`.

use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

use plimsoll_planner::Processor;

/// More than the first processor's entry has.
const FIRST: u64 = 1 << 16;

/// The processor of this machine; `None` where the kernel does not tell.
pub fn processor() -> Option<Processor> {
    static SEEN: OnceLock<Option<Processor>> = OnceLock::new();
    *SEEN.get_or_init(|| {
        let mut text = Vec::new();
        File::open("/proc/cpuinfo").ok()?.take(FIRST).read_to_end(&mut text).ok()?;
        Processor::of_cpuinfo(&String::from_utf8_lossy(&text))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn the_kernel_reports_what_the_processor_can() {
        assert!(super::processor().is_some());
    }
}
