//! Temperature, clock and throttling of the GPUs, read from NVML.

use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use plimsoll_base::CardId;
use serde::{Deserialize, Serialize};

/// Sensor readings of one card at one moment. `None` means that the driver does not report the value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sensors {
    pub card: CardId,
    pub celsius: Option<u32>,
    pub megahertz: Option<u32>,
    pub most_megahertz: Option<u32>,
    pub milliwatts: Option<u32>,
    pub busy_percent: Option<u32>,
    /// Causes of throttling, in words; idling and settings of the user are none.
    pub slowed_by: Vec<String>,
}

/// NVML's reasons that cost speed, and our words for them.
const REASONS: [(ThrottleReasons, &str); 5] = [
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, "temperature"),
    (ThrottleReasons::HW_THERMAL_SLOWDOWN, "temperature (hardware)"),
    (ThrottleReasons::SW_POWER_CAP, "power cap"),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake"),
    // NVML sets this one together with the hardware reasons above, so it comes last.
    (ThrottleReasons::HW_SLOWDOWN, "hardware slowdown"),
];

pub(super) fn read(device: &Device<'_>, card: CardId) -> Sensors {
    let reasons = device.current_throttle_reasons().unwrap_or(ThrottleReasons::empty());
    let slowed_by = REASONS.iter().filter(|(reason, _)| reasons.contains(*reason));
    Sensors {
        card,
        celsius: device.temperature(TemperatureSensor::Gpu).ok(),
        megahertz: device.clock_info(Clock::SM).ok(),
        most_megahertz: device.max_clock_info(Clock::SM).ok(),
        milliwatts: device.power_usage().ok(),
        busy_percent: device.utilization_rates().ok().map(|rates| rates.gpu),
        slowed_by: slowed_by.map(|(_, words)| (*words).to_owned()).collect(),
    }
}
