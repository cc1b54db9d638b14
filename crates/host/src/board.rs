//! Table of chips whose GPU shares the host's memory, found by device tree (`compatible`) or GPU name.

/// Limit on the length of a name.
const LONGEST: usize = 4096;

/// A system whose GPU shares the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Chip {
    /// Nano and TX1.
    Tegra210,
    /// TX2.
    Tegra186,
    /// Xavier.
    Tegra194,
    /// Orin.
    Tegra234,
    /// Thor.
    Tegra264,
    /// DGX Spark and its kin.
    Gb10,
}

/// The kernel driver that allocates host memory for the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Driver {
    /// nvgpu and NvMap, up to Orin.
    Nvmap,
    /// nvidia.ko with unified memory: Thor and GB10. `cudaMemGetInfo` reports MemFree, so page cache counts
    /// as used.
    NvidiaUnified,
}

impl Chip {
    /// By `/proc/device-tree/compatible`: names, each with a NUL behind it.
    pub fn of_compatible(compatible: &[u8]) -> Option<Self> {
        let names = compatible.get(..compatible.len().min(LONGEST))?.split(|byte| *byte == 0);
        names
            // The list starts with the board's name; the chip's comes last, as in every Jetson device tree.
            .filter_map(|name| name.strip_prefix(b"nvidia,"))
            .find_map(|name| match name {
                b"tegra210" => Some(Self::Tegra210),
                b"tegra186" => Some(Self::Tegra186),
                b"tegra194" => Some(Self::Tegra194),
                b"tegra234" => Some(Self::Tegra234),
                b"tegra264" => Some(Self::Tegra264),
                _ => None,
            })
    }

    /// By the line `Model: NVIDIA GB10` of `/proc/driver/nvidia/gpus/*/information`.
    pub fn of_information(text: &str) -> Option<Self> {
        let model = text.lines().take(64).find_map(|line| line.strip_prefix("Model:"))?;
        let mut words = model.split_ascii_whitespace();
        words.find_map(|word| match word {
            "GB10" => Some(Self::Gb10),
            // Thor's device tree may lack the name, but its driver is nvidia.ko and prints it.
            "Thor" => Some(Self::Tegra264),
            _ => None,
        })
    }

    pub fn driver(self) -> Driver {
        match self {
            Self::Tegra210 | Self::Tegra186 | Self::Tegra194 | Self::Tegra234 => Driver::Nvmap,
            Self::Tegra264 | Self::Gb10 => Driver::NvidiaUnified,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Tegra210 => "Tegra X1",
            Self::Tegra186 => "Tegra X2",
            Self::Tegra194 => "Xavier",
            Self::Tegra234 => "Orin",
            Self::Tegra264 => "Thor",
            Self::Gb10 => "GB10",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_are_known_by_their_names() {
        let orin = b"nvidia,p3768-0000+p3767-0005-super\0nvidia,p3767-0005\0nvidia,tegra234\0";
        assert_eq!(Chip::of_compatible(orin), Some(Chip::Tegra234));
        assert_eq!(Chip::of_compatible(b"raspberrypi,5-model-b\0brcm,bcm2712\0"), None);
        assert_eq!(Chip::of_information("Model: \t\t NVIDIA GB10\nIRQ:   \t\t 500\n"), Some(Chip::Gb10));
        assert_eq!(Chip::of_information("Model: NVIDIA H200\n"), None);
        assert_eq!(Chip::Tegra264.driver(), Driver::NvidiaUnified);
    }
}
