//! Reads the settings of the fake driver: `key=value` words in `PLIMSOLL_FAKE_CUDA`, read once, at the first
//! call.
//!
//! Sizes are bytes, or a number with `K`, `M`, `G` or `T` (binary). An invalid word makes `cuInit` fail with
//! CUDA_ERROR_UNKNOWN and prints a message on stderr, so that a test with a typing error does not pass.
//! `README.md` has the list of keys.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use crate::faults::Fault;

/// As many as the shared record has room for.
pub(crate) const MOST_CARDS: usize = 8;
const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// Bytes of each card; the list is as long as there are cards.
    pub(crate) totals: Vec<u64>,
    /// Bytes of each card that somebody outside the shared record holds.
    pub(crate) taken: u64,
    /// What a context costs.
    pub(crate) context: u64,
    pub(crate) driver: i32,
    pub(crate) compute: (i32, i32),
    pub(crate) uuids: Vec<String>,
    pub(crate) vmm: bool,
    pub(crate) pools: bool,
    pub(crate) integrated: bool,
    pub(crate) concurrent_managed: bool,
    /// What CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID says.
    pub(crate) numa: i32,
    /// Kinds of location that `cuMemCreate` refuses.
    pub(crate) refuse: Vec<i32>,
    /// Kernels and memsets reach host memory that was mapped through VMM.
    pub(crate) host_touch: bool,
    /// One copy or memset may reach both device and host memory of a range.
    pub(crate) across: bool,
    /// The longest range that `cuMemAddressReserve` gives.
    pub(crate) reserve: u64,
    /// The largest single allocation on the device.
    pub(crate) largest: u64,
    pub(crate) faults: Vec<Fault>,
    /// How long an operation in a stream takes, in microseconds or in queries.
    pub(crate) delay: u64,
    /// Work gets done by being asked about, not by time.
    pub(crate) by_queries: bool,
    /// How long each call takes.
    pub(crate) latency: Duration,
    /// `cuGetProcAddress` gives other addresses than `dlsym`.
    pub(crate) distinct: bool,
    /// Functions that are other ones, with other addresses, from a version of CUDA on.
    pub(crate) renewed: Vec<Renewed>,
    pub(crate) log: Option<PathBuf>,
    pub(crate) shared: Option<PathBuf>,
}

/// A name of `cuGetProcAddress`, and the version of CUDA from which on it means another function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Renewed {
    pub(crate) name: String,
    pub(crate) since: i32,
}

impl FromStr for Renewed {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (name, since) = text.split_once(':').ok_or(())?;
        Ok(Self { name: name.to_owned(), since: since.parse().map_err(drop)? })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error("`{0}` is not a `key=value` word")]
    NoWord(String),
    #[error("`{0}` is not a key; doubles/fake-cuda/README.md lists them")]
    UnknownKey(String),
    #[error("`{value}` is no value for `{key}`")]
    BadValue { key: String, value: String },
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            totals: vec![8 * GIB],
            taken: 0,
            context: 64 * MIB,
            driver: 12_080,
            compute: (9, 0),
            uuids: Vec::new(),
            vmm: true,
            pools: true,
            integrated: false,
            concurrent_managed: true,
            numa: 0,
            refuse: Vec::new(),
            host_touch: true,
            across: true,
            reserve: u64::MAX,
            largest: u64::MAX,
            faults: Vec::new(),
            delay: 0,
            by_queries: false,
            latency: Duration::ZERO,
            distinct: false,
            renewed: Vec::new(),
            log: None,
            shared: None,
        }
    }
}

/// The settings of this process.
pub(crate) fn settings() -> &'static Settings {
    &read().0
}

/// What is wrong with them.
pub(crate) fn complaint() -> Option<&'static SettingsError> {
    read().1.as_ref()
}

fn read() -> &'static (Settings, Option<SettingsError>) {
    static READ: OnceLock<(Settings, Option<SettingsError>)> = OnceLock::new();
    READ.get_or_init(|| {
        // The second passes from a daemon to its engines, as all variables of CUDA do.
        let set = |name| std::env::var(name).ok();
        let words = set("PLIMSOLL_FAKE_CUDA").or_else(|| set("CUDA_FAKE")).unwrap_or_default();
        match words.parse() {
            Ok(settings) => (settings, None),
            Err(error) => (Settings::default(), Some(error)),
        }
    })
}

impl FromStr for Settings {
    type Err = SettingsError;

    fn from_str(words: &str) -> Result<Self, SettingsError> {
        let mut settings = Self::default();
        for word in words.split_whitespace() {
            let (key, value) = word.split_once('=').ok_or_else(|| SettingsError::NoWord(word.to_owned()))?;
            settings.set(key, value)?;
        }
        let first = settings.totals[0];
        settings.totals.truncate(MOST_CARDS);
        if settings.totals.is_empty() {
            settings.totals.push(first);
        }
        Ok(settings)
    }
}

impl Settings {
    fn set(&mut self, key: &str, value: &str) -> Result<(), SettingsError> {
        let known = match key {
            "cards" => number(value).map(|count: usize| {
                let total = self.totals[0];
                self.totals.resize(count.clamp(1, MOST_CARDS), total);
            }),
            "total" => list(value, size).map(|totals| self.totals = self.spread(totals)),
            "taken" => size(value).map(|taken| self.taken = taken),
            "context" => size(value).map(|context| self.context = context),
            "driver" => number(value).map(|driver| self.driver = driver),
            "compute" => compute(value).map(|compute| self.compute = compute),
            "uuids" => list(value, |uuid| Some(uuid.to_owned())).map(|uuids| self.uuids = uuids),
            "vmm" => switch(value).map(|on| self.vmm = on),
            "pools" => switch(value).map(|on| self.pools = on),
            "integrated" => switch(value).map(|on| self.integrated = on),
            "concurrent_managed" => switch(value).map(|on| self.concurrent_managed = on),
            "numa" => number(value).map(|numa| self.numa = numa),
            "refuse" => list(value, place).map(|refuse| self.refuse = refuse),
            "host_touch" => switch(value).map(|on| self.host_touch = on),
            "across" => switch(value).map(|on| self.across = on),
            "reserve" => size(value).map(|reserve| self.reserve = reserve),
            "largest" => size(value).map(|largest| self.largest = largest),
            "fail" => list(value, |fault| fault.parse().ok()).map(|faults| self.faults = faults),
            "delay" => number(value).map(|delay| self.delay = delay),
            "clock" => clock(value).map(|by_queries| self.by_queries = by_queries),
            "latency" => number(value).map(|micros| self.latency = Duration::from_micros(micros)),
            "distinct" => switch(value).map(|on| self.distinct = on),
            "renewed" => list(value, |text| text.parse().ok()).map(|renewed| self.renewed = renewed),
            "log" => path(value).map(|log| self.log = Some(log)),
            "shared" => path(value).map(|shared| self.shared = Some(shared)),
            _ => return Err(SettingsError::UnknownKey(key.to_owned())),
        };
        known.ok_or_else(|| SettingsError::BadValue { key: key.to_owned(), value: value.to_owned() })
    }

    /// One size is for all cards, several are one for each.
    fn spread(&self, totals: Vec<u64>) -> Vec<u64> {
        match totals.as_slice() {
            [total] => vec![*total; self.totals.len()],
            _ => totals,
        }
    }
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.char_indices().last()? {
        (end, 'K') => (&text[..end], 10),
        (end, 'M') => (&text[..end], 20),
        (end, 'G') => (&text[..end], 30),
        (end, 'T') => (&text[..end], 40),
        _ => (text, 0),
    };
    number::<u64>(digits)?.checked_mul(1 << shift)
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

fn list<T>(text: &str, item: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    text.split(',').map(item).collect()
}

fn place(text: &str) -> Option<i32> {
    use crate::abi::structs::{LOCATION_DEVICE, LOCATION_HOST, LOCATION_HOST_NUMA};
    match text {
        "device" => Some(LOCATION_DEVICE),
        "host" => Some(LOCATION_HOST),
        "host_numa" => Some(LOCATION_HOST_NUMA),
        _ => None,
    }
}

fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

fn compute(text: &str) -> Option<(i32, i32)> {
    let (major, minor) = text.split_once('.')?;
    Some((number(major)?, number(minor)?))
}

fn clock(text: &str) -> Option<bool> {
    match text {
        "time" => Some(false),
        "queries" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_lists_are_read() {
        let read: Settings =
            "cards=2 total=4G context=0 refuse=host,host_numa clock=queries".parse().unwrap();
        assert_eq!(read.totals, [4 * GIB, 4 * GIB]);
        assert_eq!((read.context, read.refuse, read.by_queries), (0, vec![2, 3], true));
        let several: Settings = "total=1G,512M,4096".parse().unwrap();
        assert_eq!(several.totals, [GIB, 512 * MIB, 4096]);
    }

    #[test]
    fn a_mistyped_word_is_an_error_that_names_it() {
        let read = |words: &str| words.parse::<Settings>().unwrap_err().to_string();
        assert_eq!(read("vram=1G"), "`vram` is not a key; doubles/fake-cuda/README.md lists them");
        assert_eq!(read("total=8X"), "`8X` is no value for `total`");
        assert_eq!(read("vmm"), "`vmm` is not a `key=value` word");
    }
}
