//! Identifies a card by its numbers on the PCI bus, and finds its product name in a built-in table
//! (`data/pci.tsv`).
//!
//! DECISION: the names are a table in the program. Not every machine has a file of PCI names, and those of
//! long-lived distributions do not know this year's cards.

use super::card::Board;
use super::files::CardFiles;

const TABLE: &str = include_str!("../../data/pci.tsv");

/// Vendor and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PciId {
    pub(super) vendor: u16,
    pub(super) device: u16,
}

impl PciId {
    pub(super) const AMD: u16 = 0x1002;
    pub(super) const INTEL: u16 = 0x8086;
    pub(super) const NVIDIA: u16 = 0x10de;

    pub(super) fn text(self) -> String {
        format!("{:04x}:{:04x}", self.vendor, self.device)
    }

    /// The vendor's name and the numbers, for a card that the table does not have.
    pub(super) fn plain_name(self) -> String {
        let maker = match self.vendor {
            Self::AMD => "AMD GPU",
            Self::INTEL => "Intel GPU",
            Self::NVIDIA => "NVIDIA GPU",
            _ => "GPU",
        };
        format!("{maker} {}", self.text())
    }
}

/// What `uevent` and its neighbours say of a card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PciIdentity {
    pub(super) id: Option<PciId>,
    pub(super) revision: Option<u8>,
    pub(super) address: Option<String>,
    pub(super) driver: Option<String>,
}

impl PciIdentity {
    /// Of the folder `device` of a card.
    pub(super) fn read(files: &impl CardFiles, device: &str) -> Self {
        let event = files.text(&format!("{device}/uevent")).unwrap_or_default();
        let entry = |key: &str| {
            let mut values = event.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            values.next().map(str::trim).filter(|value| !value.is_empty())
        };
        let hex = |name: &str| {
            let value = files.value(&format!("{device}/{name}"))?;
            u16::from_str_radix(value.trim_start_matches("0x"), 16).ok()
        };
        let of_event = entry("PCI_ID").and_then(pci_id);
        let of_files = || Some(PciId { vendor: hex("vendor")?, device: hex("device")? });
        Self {
            id: of_event.or_else(of_files),
            revision: hex("revision").and_then(|revision| u8::try_from(revision).ok()),
            address: entry("PCI_SLOT_NAME").filter(|address| is_address(address)).map(str::to_owned),
            driver: entry("DRIVER").map(str::to_owned),
        }
    }

    pub(super) fn is_of_amd_or_intel(&self) -> bool {
        self.id.is_some_and(|id| [PciId::AMD, PciId::INTEL].contains(&id.vendor))
    }
}

/// `1002:744C`.
fn pci_id(text: &str) -> Option<PciId> {
    let (vendor, device) = text.split_once(':')?;
    let number = |text| u16::from_str_radix(text, 16).ok();
    Some(PciId { vendor: number(vendor)?, device: number(device)? })
}

/// `0000:03:00.0`: an identity that is shown and compared has no other letters.
fn is_address(text: &str) -> bool {
    text.len() <= 16
        && text.contains('.')
        && text.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte))
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownGpu {
    pub(super) name: &'static str,
    pub(super) board: Board,
}

/// The row of this card: that of its revision, or that of all of them.
pub(super) fn known(id: PciId, revision: Option<u8>) -> Option<KnownGpu> {
    let wanted = id.text();
    let revision = revision.map(|revision| format!("{revision:02x}"));
    let mut usual = None;
    // The rows of one device stand together.
    let first = TABLE.find(&format!("\n{wanted}\t"))?;
    for row in TABLE[first..].lines().skip(1).map_while(|line| line.strip_prefix(&*wanted)) {
        let mut fields = row.split('\t').skip(1);
        let mut next = || fields.next();
        let board = if next()? == "shared" { Board::Shared } else { Board::Own };
        let (revisions, name) = (next()?, next()?);
        let gpu = KnownGpu { name, board };
        if revisions == "-" {
            usual = Some(gpu);
        } else if revision.as_ref().is_some_and(|own| revisions.split(',').any(|other| other == own)) {
            return Some(gpu);
        }
    }
    usual
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_can_be_read() {
        let mut rows = 0;
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split('\t').collect();
            let [id, board, revisions, name] = fields.as_slice() else { panic!("{line}") };
            let id = pci_id(id).unwrap();
            assert!(["own", "shared"].contains(board) && !name.is_empty(), "{line}");
            let first = revisions.split(',').next().and_then(|text| u8::from_str_radix(text, 16).ok());
            assert_eq!(first.is_none(), *revisions == "-", "{line}");
            assert_eq!(known(id, first).unwrap().name, *name, "{line}");
            rows += 1;
        }
        assert!(rows > 500, "{rows}");
    }

    #[test]
    fn a_revision_distinguishes_products_with_one_number() {
        let name = |text: &str, revision| known(pci_id(text).unwrap(), revision).map(|gpu| gpu.name);
        assert_eq!(name("1002:744c", Some(0xc8)), Some("AMD Radeon RX 7900 XTX"));
        assert_eq!(name("1002:744c", Some(0xcc)), Some("AMD Radeon RX 7900 XT"));
        assert_eq!(name("1002:744c", None), Some("AMD Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M"));
        assert_eq!(name("1002:7551", Some(0xc0)), Some("AMD Radeon AI PRO R9700"));
        assert_eq!(name("8086:E20B", Some(0)), Some("Intel Arc B580"));
        assert_eq!(name("1002:ffff", None), None);
        let halo = known(PciId { vendor: PciId::AMD, device: 0x1586 }, Some(0xc1)).unwrap();
        assert_eq!((halo.name, halo.board), ("AMD Radeon 8060S Graphics", Board::Shared));
    }
}
