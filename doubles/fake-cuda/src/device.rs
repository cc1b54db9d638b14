//! Describes the cards of the fake CUDA driver, and their attributes.

use std::env;
use std::ffi::c_char;

use plimsoll_wire::env::CUDA_VISIBLE_DEVICES;

use crate::abi::structs::Uuid;
use crate::abi::{In, Out};
use crate::call::driver;
use crate::code::{Code, INVALID_DEVICE, INVALID_VALUE};
use crate::driver::{Driver, driver, initialise};
use crate::settings::settings;

#[derive(Debug, Clone)]
pub(crate) struct Card {
    /// Its number among all cards of the machine.
    pub(crate) index: usize,
    pub(crate) total: u64,
    pub(crate) uuid: String,
}

/// The cards that `CUDA_VISIBLE_DEVICES` leaves, in its order; the first name that is no card ends the list.
pub(crate) fn visible_cards() -> Vec<Card> {
    let all: Vec<Card> = settings().totals.iter().enumerate().map(card).collect();
    let Ok(wanted) = env::var(CUDA_VISIBLE_DEVICES) else {
        return all;
    };
    let named = |name: &str| {
        let by_number = name.trim().parse().ok().and_then(|index: usize| all.get(index));
        let by_uuid =
            || all.iter().find(|card| name.starts_with("GPU-") && card.uuid.starts_with(name.trim()));
        by_number.or_else(by_uuid).cloned()
    };
    wanted.split(',').map_while(named).collect()
}

fn card((index, total): (usize, &u64)) -> Card {
    let given = settings().uuids.get(index).cloned();
    Card {
        index,
        total: *total,
        uuid: given.unwrap_or_else(|| format!("GPU-fa4ecada-0000-4000-8000-{index:012x}")),
    }
}

impl Card {
    fn uuid_bytes(&self) -> Uuid {
        let digits: Vec<u8> =
            self.uuid[4..].chars().filter_map(|digit| u8::try_from(digit.to_digit(16)?).ok()).collect();
        let byte = |index: usize| match digits.get(2 * index..2 * index + 2) {
            Some([high, low]) => high << 4 | low,
            _ => 0,
        };
        Uuid(std::array::from_fn(byte))
    }

    fn pci(&self) -> String {
        format!("0000:{:02X}:00.0", self.index + 1)
    }
}

/// Domain, bus, device and function of `[DOMAIN:]BUS:DEVICE[.FUNCTION]`. NVML writes the domain with eight
/// digits, CUDA with four.
fn pci_address(text: &str) -> Option<[u32; 4]> {
    let number = |digits: &str| u32::from_str_radix(digits, 16).ok();
    let (rest, function) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Vec<&str> = rest.split(':').collect();
    let (domain, bus, device) = match parts.as_slice() {
        [domain, bus, device] => (*domain, *bus, *device),
        [bus, device] => ("0", *bus, *device),
        _ => return None,
    };
    Some([number(domain)?, number(bus)?, number(device)?, number(function)?])
}

impl Driver {
    /// The position of a device in our list of cards.
    pub(crate) fn device(&self, device: i32) -> Result<usize, Code> {
        let position = usize::try_from(device).map_err(|_| INVALID_DEVICE)?;
        self.cards.get(position).map(|_| position).ok_or(INVALID_DEVICE)
    }

    /// Free and total bytes of a card.
    pub(crate) fn memory_of(&self, position: usize) -> (u64, u64) {
        let card = &self.cards[position];
        let occupied = self.usage.occupied(card.index) + settings().taken;
        (card.total.saturating_sub(occupied), card.total)
    }

    fn attribute(&self, attribute: i32, position: usize) -> Result<i32, Code> {
        let settings = settings();
        let (major, minor) = settings.compute;
        Ok(match attribute {
            1 => 1024,       // threads per block
            10 => 32,        // warp
            13 => 1_980_000, // clock, kHz
            14 => 512,       // texture alignment
            16 => 132,       // multiprocessors
            18 => settings.integrated.into(),
            19 => 1, // can map host memory
            33 => i32::try_from(self.cards[position].index + 1).unwrap_or(0),
            41 => 1, // unified addressing
            75 => major,
            76 => minor,
            83 => 1, // managed memory
            89 => settings.concurrent_managed.into(),
            102 => settings.vmm.into(),
            103 => 1, // POSIX descriptors as shareable handles
            115 => settings.pools.into(),
            134 => settings.numa, // HOST_NUMA_ID
            _ if (1..=200).contains(&attribute) => 0,
            _ => return Err(INVALID_VALUE),
        })
    }
}

driver! {
    fn cuInit = "cuInit" since 2000 (Flags: u32) {
        if Flags != 0 {
            return Err(INVALID_VALUE);
        }
        initialise()
    }

    fn cuDriverGetVersion = "cuDriverGetVersion" since 2020 (driverVersion: Out<i32>) {
        driverVersion.set(settings().driver)
    }

    fn cuDeviceGet = "cuDeviceGet" since 2000 (device: Out<i32>, ordinal: i32) {
        driver()?.device(ordinal)?;
        device.set(ordinal)
    }

    fn cuDeviceGetCount = "cuDeviceGetCount" since 2000 (count: Out<i32>) {
        count.set(i32::try_from(driver()?.cards.len()).unwrap_or(0))
    }

    fn cuDeviceGetName = "cuDeviceGetName" since 2000 (name: Out<c_char>, len: i32, dev: i32) {
        driver()?.device(dev)?;
        name.set_text("Fake GPU", usize::try_from(len).map_err(|_| INVALID_VALUE)?)
    }

    fn cuDeviceGetUuid = "cuDeviceGetUuid" since 9020 (uuid: Out<Uuid>, dev: i32) {
        let driver = driver()?;
        uuid.set(driver.cards[driver.device(dev)?].uuid_bytes())
    }

    fn cuDeviceGetUuid_v2 = "cuDeviceGetUuid" since 11040 (uuid: Out<Uuid>, dev: i32) {
        let driver = driver()?;
        uuid.set(driver.cards[driver.device(dev)?].uuid_bytes())
    }

    fn cuDeviceTotalMem = "cuDeviceTotalMem" since 2000 (bytes: Out<u32>, dev: i32) {
        let driver = driver()?;
        let total = driver.cards[driver.device(dev)?].total;
        bytes.set(u32::try_from(total).unwrap_or(u32::MAX))
    }

    fn cuDeviceTotalMem_v2 = "cuDeviceTotalMem" since 3020 (bytes: Out<u64>, dev: i32) {
        let driver = driver()?;
        bytes.set(driver.cards[driver.device(dev)?].total)
    }

    fn cuDeviceGetAttribute = "cuDeviceGetAttribute" since 2000 (pi: Out<i32>, attrib: i32, dev: i32) {
        let driver = driver()?;
        pi.set(driver.attribute(attrib, driver.device(dev)?)?)
    }

    fn cuDeviceComputeCapability = "cuDeviceComputeCapability" since 2000
        (major: Out<i32>, minor: Out<i32>, dev: i32)
    {
        driver()?.device(dev)?;
        major.set(settings().compute.0)?;
        minor.set(settings().compute.1)
    }

    fn cuDeviceGetPCIBusId = "cuDeviceGetPCIBusId" since 4010 (pciBusId: Out<c_char>, len: i32, dev: i32) {
        let driver = driver()?;
        let card = &driver.cards[driver.device(dev)?];
        pciBusId.set_text(&card.pci(), usize::try_from(len).map_err(|_| INVALID_VALUE)?)
    }

    fn cuDeviceGetByPCIBusId = "cuDeviceGetByPCIBusId" since 4010 (dev: Out<i32>, pciBusId: In<c_char>) {
        let wanted = pciBusId.text()?;
        let wanted = pci_address(&wanted).ok_or(INVALID_VALUE)?;
        let position = driver()?.cards.iter().position(|card| pci_address(&card.pci()) == Some(wanted));
        dev.set(i32::try_from(position.ok_or(INVALID_DEVICE)?).unwrap_or(0))
    }

    fn cuDeviceCanAccessPeer = "cuDeviceCanAccessPeer" since 4000
        (canAccessPeer: Out<i32>, dev: i32, peerDev: i32)
    {
        let driver = driver()?;
        canAccessPeer.set((driver.device(dev)? != driver.device(peerDev)?).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::{alone, code, get, ok};
    use crate::code::{NO_DEVICE, SUCCESS};

    /// Hides cards, which only works before the first call.
    fn show_only(cards: &str) {
        // SAFETY: the process of a test runs nothing else yet that reads the environment.
        unsafe { env::set_var(CUDA_VISIBLE_DEVICES, cards) };
    }

    #[test]
    fn cards_are_as_the_test_asks() {
        alone("cards=2 total=1G,2G integrated=1 concurrent_managed=0 compute=8.7", || {
            ok(cuInit(0));
            assert_eq!(get(|count| cuDeviceGetCount(count)), 2);
            assert_eq!(get(|bytes| cuDeviceTotalMem_v2(bytes, 1)), 2 << 30);
            assert_eq!(
                [18, 89, 75, 76].map(|number| get(|value| cuDeviceGetAttribute(value, number, 0))),
                [1, 0, 8, 7]
            );
            assert_eq!(code(|device| cuDeviceGet(device, 2)), INVALID_DEVICE);
            let uuids = [0, 1].map(|card| get(|uuid| cuDeviceGetUuid_v2(uuid, card)).0);
            assert_eq!((uuids[0][0], uuids[0][15], uuids[1][15]), (0xfa, 0, 1));
        });
    }

    #[test]
    fn visible_devices_choose_and_order_the_cards() {
        alone("cards=3 total=1G,2G,3G", || {
            show_only("GPU-fa4ecada-0000-4000-8000-000000000002,0,9,1");
            ok(cuInit(0));
            assert_eq!(get(|count| cuDeviceGetCount(count)), 2);
            assert_eq!([0, 1].map(|card| get(|bytes| cuDeviceTotalMem_v2(bytes, card)) >> 30), [3, 1]);
        });
    }

    #[test]
    fn without_a_visible_card_there_is_no_device() {
        alone("", || {
            show_only("");
            assert_eq!(cuInit(0), NO_DEVICE);
            assert_eq!(code(|count| cuDeviceGetCount(count)), crate::code::NOT_INITIALIZED);
            assert_eq!(code(|version| cuDriverGetVersion(version)), SUCCESS);
        });
    }

    #[test]
    fn a_mistyped_setting_does_not_pass() {
        alone("totl=1G", || assert_eq!(cuInit(0), crate::code::UNKNOWN));
    }
}
