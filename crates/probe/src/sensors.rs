//! Temperature, clock, power and load of the GPUs, read from NVML.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use plimsoll_base::CardId;
use serde::{Deserialize, Serialize};

/// Sensor readings of one card at one moment. `None` means that the driver does not report the value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sensors {
    pub card: CardId,
    pub celsius: Option<u32>,
    pub megahertz: Option<u32>,
    pub milliwatts: Option<u32>,
    pub busy_percent: Option<u32>,
}

pub(super) fn read(device: &Device<'_>, card: CardId) -> Sensors {
    Sensors {
        card,
        celsius: device.temperature(TemperatureSensor::Gpu).ok(),
        megahertz: device.clock_info(Clock::SM).ok(),
        milliwatts: device.power_usage().ok(),
        busy_percent: device.utilization_rates().ok().map(|rates| rates.gpu),
    }
}
