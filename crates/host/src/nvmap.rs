//! Reads the allocation limit of NvMap, Tegra's GPU memory allocator:
//! `/sys/kernel/debug/nvmap/iovmm/free_size`, readable by root only.

use plimsoll_base::Bytes;

use super::fields::leading_number;

/// Reads `Max allocatable IOVMM memory: N bytes`, the kernel's own answer to the largest request.
pub fn most_allocatable(text: &str) -> Option<Bytes> {
    let (_, value) = text.lines().take(16).find_map(|line| line.split_once("memory:"))?;
    let (bytes, rest) = leading_number(value.trim_start())?;
    // Another unit would be another kernel; no figure is better than a wrong one.
    (rest.trim() == "bytes").then(|| Bytes::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_answer_is_read() {
        assert_eq!(
            most_allocatable("Max allocatable IOVMM memory: 5493489664 bytes\n"),
            Some(Bytes::new(5_493_489_664))
        );
        for text in ["", "Max allocatable IOVMM memory:", "memory: 12 pages", "memory: -1 bytes"] {
            assert_eq!(most_allocatable(text), None, "{text}");
        }
    }
}
