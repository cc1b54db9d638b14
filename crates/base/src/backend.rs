//! Lists the makers of GPUs, and the programming interfaces (CUDA, HIP, Vulkan) by which engines compute on
//! them.

use serde::{Deserialize, Serialize};

/// Maker of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CardMaker {
    #[default]
    Nvidia,
    Amd,
    Intel,
    Apple,
}

impl CardMaker {
    /// That of a PCI vendor.
    pub fn of_vendor(vendor: u16) -> Option<Self> {
        match vendor {
            0x10de => Some(Self::Nvidia),
            0x1002 => Some(Self::Amd),
            0x8086 => Some(Self::Intel),
            _ => None,
        }
    }

    pub fn is_nvidia(&self) -> bool {
        *self == Self::Nvidia
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Nvidia => "NVIDIA",
            Self::Amd => "AMD",
            Self::Intel => "Intel",
            Self::Apple => "Apple",
        }
    }

    /// The backend that computes on cards of this maker alone.
    pub fn own_backend(self) -> &'static str {
        match self {
            Self::Nvidia => "CUDA",
            Self::Amd => "HIP",
            Self::Intel => "SYCL",
            Self::Apple => "Metal",
        }
    }
}

/// Interface by which an engine computes on cards: a backend of ggml.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    Cuda,
    Hip,
    Vulkan,
    Sycl,
}

/// Name of a backend's library (`libggml-NAME.so`), and the word before the number of its devices.
const BACKENDS: [(Backend, &str, &str); 4] = [
    (Backend::Cuda, "cuda", "CUDA"),
    (Backend::Hip, "hip", "ROCm"),
    (Backend::Vulkan, "vulkan", "Vulkan"),
    (Backend::Sycl, "sycl", "SYCL"),
];

impl Backend {
    /// The backend of `libggml-NAME.so`; `None` for one that computes on no card.
    pub fn of_library(name: &str) -> Option<Self> {
        BACKENDS.into_iter().find(|(_, library, _)| *library == name).map(|(backend, ..)| backend)
    }

    /// The backend of a device as engines name it: `ROCm0`.
    pub fn of_device(name: &str) -> Option<Self> {
        let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
        let found = BACKENDS.into_iter().find(|(.., word)| name.strip_prefix(word).is_some_and(is_number));
        found.map(|(backend, ..)| backend)
    }

    /// The word before the number of its devices.
    pub fn device_word(self) -> &'static str {
        BACKENDS.into_iter().find(|(backend, ..)| *backend == self).map_or("", |(.., word)| word)
    }

    pub fn computes_on(self, maker: CardMaker) -> bool {
        match self {
            Self::Cuda => maker == CardMaker::Nvidia,
            Self::Hip => maker == CardMaker::Amd,
            Self::Sycl => maker == CardMaker::Intel,
            Self::Vulkan => true,
        }
    }
}

/// Backends for cards that an engine has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Backends {
    /// These and no others; none for an engine that computes on the processor.
    Known(Vec<Backend>),
    /// Nothing tells which.
    #[default]
    Unsure,
}

impl Backends {
    /// Whether the engine can compute on a card of this maker; `None` where that is not known.
    pub fn can_use(&self, maker: CardMaker) -> Option<bool> {
        match self {
            Self::Known(_) => Some(self.on(maker).is_some()),
            Self::Unsure => None,
        }
    }

    /// The backend by which the engine computes on a card of this maker: the maker's own before Vulkan.
    pub fn on(&self, maker: CardMaker) -> Option<Backend> {
        let Self::Known(known) = self else { return None };
        let able = known.iter().copied().filter(|backend| backend.computes_on(maker));
        able.min_by_key(|backend| *backend == Backend::Vulkan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_computes_on_the_cards_of_its_maker_and_vulkan_on_all() {
        use Backend::{Cuda, Hip, Sycl, Vulkan};
        use CardMaker::{Amd, Intel, Nvidia};
        let on = |known: &[Backend], maker| Backends::Known(known.to_vec()).on(maker);
        for (known, expected) in [
            (&[Cuda][..], [Some(Cuda), None, None]),
            (&[Hip], [None, Some(Hip), None]),
            (&[Sycl], [None, None, Some(Sycl)]),
            (&[Vulkan, Cuda, Hip], [Some(Cuda), Some(Hip), Some(Vulkan)]),
            (&[Cuda, Vulkan], [Some(Cuda), Some(Vulkan), Some(Vulkan)]),
            (&[], [None, None, None]),
        ] {
            assert_eq!([Nvidia, Amd, Intel].map(|maker| on(known, maker)), expected, "{known:?}");
        }
        assert_eq!(Backends::Unsure.can_use(Nvidia), None);
        assert_eq!(Backends::Known(Vec::new()).can_use(Amd), Some(false));
    }

    #[test]
    fn names_of_libraries_and_devices_are_read() {
        assert_eq!(Backend::of_library("hip"), Some(Backend::Hip));
        assert_eq!((Backend::of_library("cpu"), Backend::of_library("")), (None, None));
        for (name, _, word) in BACKENDS {
            assert_eq!(Backend::of_device(&format!("{word}12")), Some(name));
            assert_eq!((Backend::of_device(word), name.device_word()), (None, word));
        }
        assert_eq!((Backend::of_device("BLAS0"), Backend::of_device("CUDAx")), (None, None));
    }
}
