//! Interface version of the engine, measured in the engine itself.
//!
//! DECISION: no version number is trusted. The engine's own accessors (`ggml_backend_buft_get_alignment` and
//! so on) are called with probe objects, whose tables hold in each slot a function that records the slot's
//! number. The recorded slot is the one that this engine reads. Version 2 reads the alignment from slot 2,
//! version 3 from slot 3. An engine that matches neither version in every slot and offset used here is
//! declined, and the message names the mismatch. Tensors and graphs are made by the engine and read back
//! through this crate's declarations. A loader of another version ignores the plugin by its own check
//! (`api_version`). Source of the versions: `ggml-backend-impl.h:GGML_BACKEND_API_VERSION`, 2 @ b8799 and
//! b10605, 3 @ ggml 0.26.0.

use alloc::format;
use alloc::string::String;
use core::ffi::c_int;
use core::ptr::null;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use crate::abi::{BUFFER_TYPE_SLOTS_2, BUFFER_TYPE_SLOTS_3, BufferType, Function, Handle, Tensor};
use crate::engine::Functions;
use objects::{buffers, tensors};
use tables::devices;

mod objects;
mod tables;

/// Known values of `GGML_BACKEND_API_VERSION`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Two,
    Three,
}

impl Version {
    pub(crate) const fn number(self) -> c_int {
        match self {
            Self::Two => 2,
            Self::Three => 3,
        }
    }

    /// Slots of the table of a buffer type; the device and the context follow.
    pub(crate) const fn buffer_type_slots(self) -> usize {
        match self {
            Self::Two => BUFFER_TYPE_SLOTS_2,
            Self::Three => BUFFER_TYPE_SLOTS_3,
        }
    }
}

/// Slot of the probe function that was called last.
static CALLED: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Records its slot's number, whatever the arguments are. Returns a value other than 0, since ggml aborts on
/// a null object.
extern "C" fn slot<const N: usize>() -> usize {
    CALLED.store(N, Relaxed);
    1
}

/// The slot that the engine reads in this call; none if it calls no probe function.
fn called<T>(ask: impl FnOnce() -> T) -> usize {
    CALLED.store(usize::MAX, Relaxed);
    ask();
    CALLED.load(Relaxed)
}

const PROBES: [extern "C" fn() -> usize; 16] = [
    slot::<0>, slot::<1>, slot::<2>, slot::<3>, slot::<4>, slot::<5>, slot::<6>, slot::<7>, slot::<8>,
    slot::<9>, slot::<10>, slot::<11>, slot::<12>, slot::<13>, slot::<14>, slot::<15>,
];

fn probes<const N: usize>() -> [Function; N] {
    let mut table = [null(); N];
    for (place, probe) in table.iter_mut().zip(PROBES) {
        *place = probe as Function;
    }
    table
}

/// Measurements and expected values, in order.
struct Findings(Option<String>);

impl Findings {
    fn expect(&mut self, what: &str, measured: usize, expected: usize) {
        if self.0.is_none() && measured != expected {
            self.0 = Some(format!("{what} is {measured} and not {expected}"));
        }
    }

    fn done(self) -> Result<(), String> {
        self.0.map_or(Ok(()), Err)
    }
}

/// The interface version of the engine, or the first measurement that fits no known version.
pub(crate) fn version(engine: &Functions) -> Result<Version, String> {
    let version = buffer_types(engine)?;
    devices(engine)?;
    buffers(engine)?;
    tensors(engine)?;
    Ok(version)
}

fn buffer_types(engine: &Functions) -> Result<Version, String> {
    let mut table = BufferType(probes());
    let handle: Handle = (&raw mut table).cast();
    let tensor = Tensor::EMPTY;
    // SAFETY: each calls one slot of the table with the handle and at most a tensor; all slots are functions
    // that look at nothing.
    let (alignment, size, most, host, name) = unsafe {
        (
            called(|| (engine.ggml_backend_buft_get_alignment)(handle)),
            called(|| (engine.ggml_backend_buft_get_alloc_size)(handle, &raw const tensor)),
            called(|| (engine.ggml_backend_buft_get_max_size)(handle)),
            called(|| (engine.ggml_backend_buft_is_host)(handle)),
            called(|| (engine.ggml_backend_buft_name)(handle)),
        )
    };
    let (version, expected) = match alignment {
        2 => (Version::Two, [4, 3, 5]),
        3 => (Version::Three, [5, 4, 7]),
        other => return Err(format!("the slot of get_alignment is {other} and not 2 or 3")),
    };
    let mut findings = Findings(None);
    findings.expect("the slot of buffer_type.get_name", name, 0);
    findings.expect("the slot of buffer_type.get_alloc_size", size, expected[0]);
    findings.expect("the slot of buffer_type.get_max_size", most, expected[1]);
    findings.expect("the slot of buffer_type.is_host", host, expected[2]);
    // SAFETY: it returns the field behind the table.
    let device = unsafe { (engine.ggml_backend_buft_get_device)(handle) };
    let slots = version.buffer_type_slots();
    let behind = table.0.get(slots).copied().unwrap_or(null());
    findings.expect("buffer_type.device", device.addr(), behind.addr());
    findings.done().map(|()| version)
}
