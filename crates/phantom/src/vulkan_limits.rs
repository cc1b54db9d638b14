//! Gives the Vulkan device limits that phantom (the stand-in for a GPU) reports for a card, from a table of
//! vendors.
//!
//! An engine's buffers depend on these limits. Each can be set in the card's description.

use alloc::format;
use alloc::string::String;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VulkanLimits {
    pub(crate) vendor: u32,
    /// `VkPhysicalDeviceType`: 1 integrated, 2 discrete, 4 a processor.
    pub(crate) kind: u32,
    /// Bytes that a shader may reach through one binding.
    pub(crate) range: u32,
    /// Alignment of a binding's offset.
    pub(crate) align: u64,
    /// Alignment of mappings.
    pub(crate) map_align: u64,
    /// Bytes of the largest allocation and of the largest buffer.
    pub(crate) allocation: u64,
    pub(crate) buffer: u64,
    /// Granularity of a buffer's size.
    pub(crate) round: u64,
    pub(crate) subgroup: u32,
    /// Compute units of a card that is not NVIDIA's.
    pub(crate) cores: u32,
    /// 1 with VK_KHR_cooperative_matrix, 2 with VK_NV_cooperative_matrix2 too.
    pub(crate) matrix: u32,
    /// True with VK_KHR_shader_integer_dot_product.
    pub(crate) dot: bool,
}

pub(crate) const AMD: u32 = 0x1002;
pub(crate) const NVIDIA: u32 = 0x10de;
const INTEL: u32 = 0x8086;

/// NVIDIA's driver 580 on an H200 (`data/vulkan`).
const USUAL: VulkanLimits = VulkanLimits {
    vendor: NVIDIA,
    kind: 2,
    range: u32::MAX,
    align: 16,
    map_align: 64,
    allocation: 4_292_870_144,
    buffer: 1 << 40,
    round: 16,
    subgroup: 32,
    cores: 132,
    matrix: 2,
    dot: true,
};

impl VulkanLimits {
    /// Limits of a vendor's driver on Linux: Mesa's for AMD and Intel.
    fn of(vendor: u32) -> Self {
        let mesa = Self { vendor, align: 4, map_align: 4096, allocation: 4_294_967_292, matrix: 1, ..USUAL };
        match vendor {
            AMD => Self { buffer: mesa.allocation, subgroup: 64, cores: 40, ..mesa },
            INTEL => Self { range: 1 << 30, buffer: mesa.allocation, cores: 32, ..mesa },
            NVIDIA => USUAL,
            _ => Self { vendor, matrix: 1, ..USUAL },
        }
    }

    /// Takes a limit by its key, the vendor before the others.
    pub(crate) fn take(&mut self, key: &str, value: u64) -> Result<(), String> {
        let small = || u32::try_from(value).map_err(|_| format!("{key}={value} is too large"));
        match key {
            "vendor" => *self = Self { kind: self.kind, ..Self::of(small()?) },
            "type" => self.kind = small()?,
            "range" => self.range = small()?,
            "align" => self.align = power(key, value)?,
            "mapalign" => self.map_align = power(key, value)?,
            "allocation" => self.allocation = value,
            "buffer" => self.buffer = value,
            "round" => self.round = power(key, value)?,
            "subgroup" => self.subgroup = small()?,
            "cores" => self.cores = small()?,
            "matrix" => self.matrix = small()?,
            "dot" => self.dot = value > 0,
            _ => {
                return Err(format!(
                    "`{key}` is unknown; known are total, free, cc, sms, integrated, vmm, gfx, name, and \
                        the limits of Vulkan"
                ));
            }
        }
        Ok(())
    }
}

impl Default for VulkanLimits {
    fn default() -> Self {
        USUAL
    }
}

/// Alignments are powers of two, and an engine divides by them.
fn power(key: &str, value: u64) -> Result<u64, String> {
    if value.is_power_of_two() { Ok(value) } else { Err(format!("{key}={value} is not a power of two")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vendor_has_its_drivers_limits_and_each_can_be_reported() {
        let mut limits = VulkanLimits::default();
        assert_eq!((limits.vendor, limits.align), (0x10de, 16));
        for (key, value) in [("type", 1), ("vendor", 4098), ("range", 128 << 20), ("matrix", 0)] {
            assert_eq!(limits.take(key, value), Ok(()), "{key}");
        }
        assert_eq!((limits.vendor, limits.kind, limits.align, limits.subgroup), (AMD, 1, 4, 64));
        assert_eq!((limits.range, limits.matrix, limits.dot), (128 << 20, 0, true));
    }

    #[test]
    fn vulkan_limits_invalid_for_engines_are_rejected() {
        for (key, value) in
            [("align", 0), ("mapalign", 3), ("round", 6), ("range", 1 << 32), ("vendor", 1 << 32)]
        {
            assert!(VulkanLimits::default().take(key, value).is_err(), "{key}={value}");
        }
    }
}
