//! Lists a machine's GPUs that the kernel knows, and the processes that hold their memory.

use std::collections::BTreeMap;

use plimsoll_base::{Bytes, CardId, Order};

use super::card::{Board, KernelCard, MemoryPool};
use super::files::{CardFiles, IntelDriver};
use super::kfd::{self, KfdNode};
use super::pci::{self, PciId, PciIdentity};
use super::processes::Processes;
use super::regions;
use super::room::HostFigures;
use crate::Holder;

const CARDS: &str = "sys/class/drm";
const NVIDIA_CARDS: &str = "proc/driver/nvidia/gpus";
/// GPUs of one machine that are looked at.
const MOST_CARDS: usize = 256;

/// GPUs of AMD and Intel, and on a captured machine NVIDIA's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelSurvey {
    pub(crate) cards: Vec<KernelCard>,
    pub(crate) holders: Vec<Holder>,
    /// GPUs that are left out, each with the reason.
    pub(crate) notes: Vec<String>,
}

/// A card with its number in the driver for compute, until its processes are joined with it.
pub(super) struct Found {
    pub(super) card: KernelCard,
    pub(super) gpu: Option<u64>,
}

impl KernelSurvey {
    /// The cards, and the processes that hold their memory.
    pub(crate) fn of(files: &impl CardFiles) -> Self {
        Self::read(files, true)
    }

    /// The cards alone: to find the holders takes a look at each descriptor of each process.
    pub(crate) fn of_cards(files: &impl CardFiles) -> Self {
        Self::read(files, false)
    }

    fn read(files: &impl CardFiles, wants_holders: bool) -> Self {
        let mut survey = Self::default();
        let mut found = survey.display_cards(files);
        join(&mut found, kfd::nodes(files));
        if !files.is_live() {
            found.extend(nvidia_cards(files));
        }
        if found.is_empty() {
            return survey;
        }
        identify(&mut found);
        number_for_level_zero(&mut found);
        let needs_holders = wants_holders || found.iter().any(|found| found.card.has_pools());
        let processes = if needs_holders { Processes::read(files, &found) } else { Processes::default() };
        let host = HostFigures::read(files);
        for (number, found) in found.iter_mut().enumerate() {
            let held = processes.on(number, found.card.board);
            found.card.find_room(held, &host);
            found.card.warn_of_traps(&host);
            found.card.explain_unknown(files.is_live());
        }
        survey.holders = processes.holders(files, &found);
        survey.cards = found.into_iter().map(|found| found.card).collect();
        survey
    }

    /// Cards by `/sys/class/drm`, whose other entries are connectors and render nodes.
    fn display_cards(&mut self, files: &impl CardFiles) -> Vec<Found> {
        let number = |name: &str| name.strip_prefix("card")?.parse::<u32>().ok();
        let mut names: Vec<String> = files.list(CARDS);
        names.retain(|name| number(name).is_some());
        names.order_by_key(|name| number(name));
        names.truncate(MOST_CARDS);
        let mut found = Vec::new();
        for name in names {
            let identity = PciIdentity::read(files, &format!("{CARDS}/{name}/device"));
            // Servers have a display for their administrators, and boards a video unit, which no model uses.
            if files.is_live() && !identity.is_of_amd_or_intel() {
                continue;
            }
            match card(files, &name, identity) {
                Ok(card) => found.extend(card.map(|card| Found { card, gpu: None })),
                Err(why) => self.notes.push(format!("{name} is left out: {why}")),
            }
        }
        found
    }
}

/// `None` for a card of NVIDIA, of which its library tells more.
fn card(
    files: &impl CardFiles,
    name: &str,
    identity: PciIdentity,
) -> Result<Option<KernelCard>, &'static str> {
    let PciIdentity { id, revision, address, driver } = identity;
    let id = id.ok_or("it is not a PCI device")?;
    match id.vendor {
        PciId::AMD | PciId::INTEL => {}
        PciId::NVIDIA => return Ok(None),
        _ => return Err("it is not a GPU of AMD or Intel"),
    }
    let driver = driver.ok_or("no driver is bound to it")?;
    let folder = format!("{CARDS}/{name}/device");
    let known = pci::known(id, revision);
    let product = files.value(&format!("{folder}/product_name")).filter(|name| is_shown(name));
    let mut card = KernelCard {
        id: CardId::new(address.as_deref().unwrap_or(name)),
        name: product.or(known.map(|gpu| gpu.name.to_owned())).unwrap_or_else(|| id.plain_name()),
        uuid: files.value(&format!("{folder}/unique_id")).and_then(|text| {
            let number = u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()?;
            kfd::uuid(number)
        }),
        address,
        pci: Some(id.text()),
        render_minor: render_minor(files, &folder),
        board: known.map(|gpu| gpu.board),
        ..KernelCard::unknown(Some(driver.clone()))
    };
    match driver.as_str() {
        "amdgpu" => card.read_pools(files, &folder),
        "xe" => card.ask_regions(files, IntelDriver::Xe),
        "i915" => card.ask_regions(files, IntelDriver::I915),
        _ => {}
    }
    Ok(Some(card))
}

/// A name that a firmware wrote: letters that a line of text can have.
fn is_shown(name: &str) -> bool {
    name.len() <= 64 && name.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

fn render_minor(files: &impl CardFiles, device: &str) -> Option<u32> {
    files.list(&format!("{device}/drm")).iter().find_map(|name| name.strip_prefix("renderD")?.parse().ok())
}

impl KernelCard {
    /// A card of which nothing is known but its driver.
    fn unknown(driver: Option<String>) -> Self {
        Self {
            id: CardId::new("card"),
            name: String::new(),
            uuid: None,
            address: None,
            pci: None,
            driver,
            rocr: None,
            level_zero: None,
            render_minor: None,
            architecture: None,
            board: None,
            total: None,
            used: None,
            free: None,
            limit: None,
            vram: MemoryPool::default(),
            visible: MemoryPool::default(),
            gtt: MemoryPool::default(),
            notes: Vec::new(),
        }
    }

    fn read_pools(&mut self, files: &impl CardFiles, folder: &str) {
        let pool = |name: &str| {
            let bytes =
                |part: &str| files.number(&format!("{folder}/mem_info_{name}_{part}")).map(Bytes::new);
            MemoryPool::new(bytes("total").filter(|total| !total.is_zero()), bytes("used"))
        };
        (self.vram, self.visible, self.gtt) = (pool("vram"), pool("vis_vram"), pool("gtt"));
        // The maker of the memory chips: the driver has none to name on an APU.
        if self.board.is_none() && files.value(&format!("{folder}/mem_info_vram_vendor")).is_some() {
            self.board = Some(Board::Own);
        }
    }

    fn ask_regions(&mut self, files: &impl CardFiles, driver: IntelDriver) {
        // Intel's integrated GPU is device 2 of the first bus, and no card can be there.
        let is_integrated = self.address.as_deref() == Some("0000:00:02.0");
        self.board = self.board.or(is_integrated.then_some(Board::Shared));
        let answer = self.render_minor.and_then(|minor| files.memory_regions(minor, driver));
        self.vram = answer.map(|answer| regions::on_card(&answer, driver)).unwrap_or_default();
        if self.vram.total.is_some() {
            self.board = Some(Board::Own);
        }
    }

    /// Reasons of figures that are missing.
    fn explain_unknown(&mut self, is_live: bool) {
        let driver = self.driver.clone().unwrap_or_else(|| "kfd".to_owned());
        if self.board.is_none() && driver != "nvidia" {
            self.note("whether it shares the host's memory is unknown; it counts as a card of its own");
        }
        let text = match (driver.as_str(), self.total, self.free) {
            (_, Some(_), Some(_)) => return,
            ("nvidia", ..) => "its memory is unknown: the driver nvidia reports it only through its \
                library (NVML)"
                .to_owned(),
            ("amdgpu", None, _) => "its memory is unknown: mem_info_vram_total cannot be read".to_owned(),
            ("amdgpu", ..) => "the used memory is unknown: mem_info_*_used cannot be read".to_owned(),
            ("kfd", None, _) => {
                "its memory is unknown: its node in /sys/class/kfd lists no mem_banks".to_owned()
            }
            ("xe" | "i915", None, _) if !is_live => {
                format!(
                    "its memory is unknown: the driver {driver} reports it only to programs on that \
                        machine, and not in files"
                )
            }
            ("xe" | "i915", None, _) => {
                format!("its memory is unknown: the driver {driver} does not answer at the render node")
            }
            ("xe" | "i915", ..) => "the used memory is unknown: the driver reports it only to programs \
                with the capability CAP_PERFMON"
                .to_owned(),
            (_, None, _) => format!("its memory is unknown: the driver {driver} does not report it"),
            _ => "the used memory is unknown".to_owned(),
        };
        // An integrated GPU said it of the host.
        if self.notes.is_empty() || self.board != Some(Board::Shared) {
            self.note(text);
        }
    }
}

/// Adds to the cards what the driver for compute says of them, and the nodes that are no card of the display.
fn join(found: &mut Vec<Found>, nodes: Vec<KfdNode>) {
    // ROCr counts the nodes that compute, in the order of their numbers.
    for (number, node) in nodes.into_iter().enumerate() {
        let same = |found: &&mut Found| {
            let by_render = node.render_minor.is_some() && node.render_minor == found.card.render_minor;
            let by_place = node.address.is_some() && node.address == found.card.address;
            found.gpu.is_none() && (by_render || by_place)
        };
        if let Some(found) = found.iter_mut().find(same) {
            found.gpu = node.gpu;
            let card = &mut found.card;
            card.rocr = Some(number);
            card.architecture = node.architecture;
            card.uuid = card.uuid.take().or(node.uuid);
            card.render_minor = card.render_minor.or(node.render_minor);
            if card.vram.total.is_none() {
                card.vram = node.memory;
            }
        } else if found.len() < MOST_CARDS {
            found.push(of_node(number, node));
        }
    }
}

fn of_node(rocr: usize, node: KfdNode) -> Found {
    let id = node.vendor.zip(node.device).map(|(vendor, device)| PciId { vendor, device });
    let known = id.and_then(|id| pci::known(id, None));
    let name = known.map(|gpu| gpu.name.to_owned()).or(id.map(PciId::plain_name));
    let place = node.address.clone().unwrap_or_else(|| format!("kfd-node-{}", node.number));
    let card = KernelCard {
        id: CardId::new(&place),
        name: name.unwrap_or_else(|| "AMD GPU".to_owned()),
        uuid: node.uuid,
        address: node.address,
        pci: id.map(PciId::text),
        rocr: Some(rocr),
        render_minor: node.render_minor,
        architecture: node.architecture,
        board: known.map(|gpu| gpu.board),
        vram: node.memory,
        ..KernelCard::unknown(None)
    };
    Found { card, gpu: node.gpu }
}

/// Cards of NVIDIA by its driver's folder, for a machine whose library cannot be asked.
fn nvidia_cards(files: &impl CardFiles) -> Vec<Found> {
    let folders = files.list(NVIDIA_CARDS).into_iter().take(MOST_CARDS);
    let card = |address: String| {
        let text = files.text(&format!("{NVIDIA_CARDS}/{address}/information"))?;
        let line = |key: &str| {
            let value = text.lines().take(64).find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            value.map(str::trim).filter(|value| is_shown(value)).map(str::to_owned)
        };
        let card = KernelCard {
            id: CardId::new(&address),
            name: line("Model")?,
            uuid: line("GPU UUID"),
            address: Some(address),
            ..KernelCard::unknown(Some("nvidia".to_owned()))
        };
        Some(Found { card, gpu: None })
    };
    folders.filter_map(card).collect()
}

/// Intel's runtime counts its cards by their addresses under `ZE_ENABLE_PCI_ID_DEVICE_ORDER`.
fn number_for_level_zero(found: &mut [Found]) {
    let mut cards: Vec<&mut KernelCard> = found
        .iter_mut()
        .map(|found| &mut found.card)
        .filter(|card| matches!(card.driver.as_deref(), Some("xe" | "i915")) && card.address.is_some())
        .collect();
    cards.order_by_cached_key(|card| card.address.clone());
    for (number, card) in cards.into_iter().enumerate() {
        card.level_zero = Some(number);
    }
}

/// Gives each card an id that no other has: partitions of a card have one unique number.
fn identify(found: &mut [Found]) {
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for uuid in found.iter().filter_map(|found| found.card.uuid.as_ref()) {
        *count.entry(uuid.clone()).or_default() += 1;
    }
    for Found { card, .. } in found.iter_mut() {
        let uuid = card.uuid.take().filter(|uuid| count.get(uuid) == Some(&1));
        if let Some(uuid) = &uuid {
            card.id = CardId::new(uuid);
        }
        card.uuid = uuid;
    }
}
