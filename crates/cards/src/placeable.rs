//! Chooses the GPUs of a machine on which models are placed.

use plimsoll_base::{Backends, Card};

use crate::{KernelCard, Machine};

impl Machine {
    /// All GPUs whose memory is known, those of NVIDIA first.
    pub fn gpus(&self) -> Vec<Card> {
        self.cards.iter().cloned().chain(self.kernel_cards.iter().filter_map(KernelCard::shown)).collect()
    }

    /// The GPUs on which models are placed where the user names none; `engine` has the backends of the usual
    /// engine.
    ///
    /// DECISION: a GPU in the host's memory serves where there is no other one and the engine is known to
    /// use it. Beside a card it is the small part of a processor that drives the display. For an engine that
    /// computes on the processor the host's own memory is larger.
    pub fn placeable(&self, engine: &Backends) -> Vec<Card> {
        let is_of_library = |card: &Card| self.cards.contains(card);
        let (own, shared): (Vec<Card>, Vec<Card>) =
            self.gpus().into_iter().partition(|card| is_of_library(card) || !card.shares_host);
        if !own.is_empty() {
            return own;
        }
        shared.into_iter().filter(|card| engine.can_use(card.maker) == Some(true)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use plimsoll_base::{Backend, CardMaker};

    use super::*;
    use crate::{Sysroot, look_at};

    fn amd(root: &Path, number: u32, id: &str, gib: [u64; 2]) {
        let device = root.join(format!("sys/class/drm/card{number}/device"));
        fs::create_dir_all(&device).unwrap();
        let event = format!("DRIVER=amdgpu\nPCI_ID={id}\nPCI_SLOT_NAME=0000:0{number}:00.0\n");
        fs::write(device.join("uevent"), event).unwrap();
        for (pool, gib) in ["vram", "gtt"].into_iter().zip(gib) {
            fs::write(device.join(format!("mem_info_{pool}_total")), (gib << 30).to_string()).unwrap();
            fs::write(device.join(format!("mem_info_{pool}_used")), "0").unwrap();
        }
    }

    fn machine(root: &Path) -> Machine {
        look_at(&Sysroot::captured(root).unwrap())
    }

    #[test]
    fn an_apu_serves_an_engine_that_uses_it_where_there_is_no_card() {
        let root = tempfile::tempdir().unwrap();
        amd(root.path(), 1, "1002:1586", [4, 60]);
        let vulkan = Backends::Known(vec![Backend::Vulkan]);
        let [apu] = &machine(root.path()).placeable(&vulkan)[..] else { panic!() };
        assert!(apu.shares_host && apu.maker == CardMaker::Amd);
        for other in [Backends::Unsure, Backends::Known(Vec::new()), Backends::Known(vec![Backend::Cuda])] {
            assert!(machine(root.path()).placeable(&other).is_empty(), "{other:?}");
        }
        amd(root.path(), 2, "1002:744C", [24, 16]);
        for engine in [vulkan, Backends::Unsure] {
            let [card] = &machine(root.path()).placeable(&engine)[..] else { panic!() };
            assert_eq!((card.address.as_deref(), card.shares_host), (Some("0000:02:00.0"), false));
        }
        assert_eq!(machine(root.path()).gpus().len(), 2);
    }
}
