//! Chooses the GPUs of a machine on which models are placed.

use plimsoll_base::{Backends, Card, CardNames};

use crate::{KernelCard, Machine};

impl Machine {
    /// What each GPU may be called by, in the order by which `plimsoll doctor` numbers them. Those of unknown
    /// memory are among them.
    pub fn names(&self) -> Vec<CardNames> {
        let of_kernel = self.kernel_cards.iter().map(KernelCard::names);
        self.cards.iter().map(Card::names).chain(of_kernel).collect()
    }

    /// The GPU at this place of [`Self::names`]; `None` where its memory is unknown.
    pub fn numbered(&self, number: usize) -> Option<Card> {
        match number.checked_sub(self.cards.len()) {
            None => self.cards.get(number).cloned(),
            Some(number) => self.kernel_cards.get(number).and_then(KernelCard::shown),
        }
    }

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

    /// Why no model is placed on this card where the user names none; `engine` as above.
    pub fn obstacle(&self, card: &KernelCard, engine: &Backends) -> String {
        let Some(shown) = card.shown() else {
            let known = card.notes.first().cloned();
            return known.unwrap_or_else(|| "its memory is unknown".to_owned());
        };
        if engine.can_use(shown.maker) == Some(true) {
            return "it shares the host's memory, and another card has its own".to_owned();
        }
        let own = shown.maker.own_backend();
        format!("it is used with an engine that has {own} or Vulkan, and none was found")
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
            let machine = machine(root.path());
            assert!(machine.placeable(&other).is_empty(), "{other:?}");
            let obstacle = machine.obstacle(&machine.kernel_cards[0], &other);
            assert_eq!(obstacle, "it is used with an engine that has HIP or Vulkan, and none was found");
        }
        amd(root.path(), 2, "1002:744C", [24, 16]);
        for engine in [vulkan, Backends::Unsure] {
            let [card] = &machine(root.path()).placeable(&engine)[..] else { panic!() };
            assert_eq!((card.address.as_deref(), card.shares_host), (Some("0000:02:00.0"), false));
        }
        let machine = machine(root.path());
        assert_eq!(machine.gpus().len(), 2);
        let apu = machine.kernel_cards.iter().find(|card| card.shown().is_some_and(|card| card.shares_host));
        let obstacle = machine.obstacle(apu.unwrap(), &Backends::Known(vec![Backend::Vulkan]));
        assert_eq!(obstacle, "it shares the host's memory, and another card has its own");
    }

    #[test]
    fn a_card_whose_memory_is_unknown_has_the_drivers_reason() {
        let root = tempfile::tempdir().unwrap();
        let device = root.path().join("sys/class/drm/card1/device");
        fs::create_dir_all(&device).unwrap();
        let event = "DRIVER=xe\nPCI_ID=8086:E20B\nPCI_SLOT_NAME=0000:0b:00.0\n";
        fs::write(device.join("uevent"), event).unwrap();
        let machine = machine(root.path());
        let obstacle = machine.obstacle(&machine.kernel_cards[0], &Backends::Unsure);
        assert!(
            obstacle.starts_with("its memory is unknown: the driver xe reports it only to"),
            "{obstacle}"
        );
    }
}
