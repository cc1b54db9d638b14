//! State of the plugin in one process: its cards, behind one registry.
//!
//! DECISION: created at the first call of the loader and never freed, because the engine keeps addresses of
//! all of it. If anything does not fit, the plugin declines for the life of the process, after one line on
//! stderr.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{ffi::CString, format};
use core::ffi::{CStr, c_char};
use core::ptr::null_mut;
use core::sync::atomic::AtomicU64;

use plimsoll_wire::env;

use plimsoll_pool::demand::Rules;

use crate::abi::{BufferType, Device, Registry};
use crate::cards::{self, Card};
use crate::device;
use crate::engine::{self, Engine, Missing};
use crate::generation::{self, Generation};
use crate::memory;
use crate::probe::{self, Version};
use crate::report::Report;
use crate::say::say;
use plimsoll_nostd::lock::Lock;

pub(crate) struct Phantom {
    pub(crate) engine: &'static Engine,
    pub(crate) report: Report,
    pub(crate) registry: Registry,
    pub(crate) host_memory: BufferType,
    /// Pinned: the engine keeps their addresses.
    pub(crate) cards: Vec<CardState>,
}

// SAFETY: what the engine sees of it is never changed after it is made; the rest are atomics and locks.
unsafe impl Sync for Phantom {}
// SAFETY: as above.
unsafe impl Send for Phantom {}

/// One card, with the structures through which ggml knows it.
pub(crate) struct CardState {
    pub(crate) index: usize,
    pub(crate) card: Card,
    pub(crate) rules: Rules,
    /// Bytes in buffers on the card.
    pub(crate) used: AtomicU64,
    pub(crate) memory: BufferType,
    pub(crate) device: Device,
    /// Batch size from which a weight in host memory is copied to the card.
    pub(crate) offload_from: u64,
    pub(crate) id: CString,
}

enum Made {
    NotYet,
    Declined,
    Ready(&'static Phantom),
}

static PHANTOM: Lock<Made> = Lock::new(Made::NotYet);

/// The plugin's state; `None` where the plugin declines.
pub(crate) fn get() -> Option<&'static Phantom> {
    let mut made = PHANTOM.hold();
    if matches!(*made, Made::NotYet) {
        *made = match make() {
            Ok(phantom) => Made::Ready(phantom),
            Err(why) => {
                say!("declined: {why}");
                Made::Declined
            }
        };
    }
    match *made {
        Made::Ready(phantom) => Some(phantom),
        _ => None,
    }
}

fn make() -> Result<&'static Phantom, String> {
    let specification = variable(env::PHANTOM_CARDS).ok_or_else(|| {
        format!(
            "{} names no card; give total=BYTES,free=BYTES,cc=MAJOR.MINOR for each",
            env::PHANTOM_CARDS
        )
    })?;
    let cards = cards::parse(&specification).map_err(|what| format!("{}: {what}", env::PHANTOM_CARDS))?;
    let build = match variable(env::PHANTOM_BUILD) {
        None => None,
        Some(text) => Some(
            text.trim()
                .parse()
                .map_err(|_| format!("{}: `{text}` is not a number", env::PHANTOM_BUILD))?,
        ),
    };
    let engine = engine::keep(engine::find().map_err(missing)?);
    let version = probe::version(&engine.functions).map_err(|what| {
        format!(
            "ggml {} has another backend interface than 2 or 3: {what}",
            engine.version
        )
    })?;
    let (generation, evidence) = generation::of(version, build, engine);
    let report = Report::open(
        variable(env::PHANTOM_REPORT).as_deref(),
        variable(env::PHANTOM_TRACE).as_deref(),
    );
    report.loaded(engine, build, version, generation, evidence, &cards);
    Ok(link(engine, version, generation, report, cards))
}

/// Builds every structure that the engine will point at, and links them to each other.
fn link(
    engine: &'static Engine,
    version: Version,
    generation: Generation,
    report: Report,
    cards: Vec<Card>,
) -> &'static Phantom {
    let offload_from =
        variable("GGML_OP_OFFLOAD_MIN_BATCH").map_or(32, |text| text.trim().parse().unwrap_or(0));
    let cards = cards.into_iter().enumerate().map(|(index, card)| {
        CardState {
            index,
            rules: Rules {
                capability: card.capability,
                processors: card.processors,
                engine: generation,
            },
            card,
            used: AtomicU64::new(0),
            memory: BufferType::EMPTY,
            device: device::unlinked(),
            offload_from,
            // no card of a machine has it, and each of ours has its own
            id: CString::new(format!("0000:{:02x}:00.0", index + 1)).unwrap_or_default(),
        }
    });
    let phantom = Box::leak(Box::new(Phantom {
        engine,
        report,
        registry: device::registry(version),
        host_memory: BufferType::EMPTY,
        cards: cards.collect(),
    }));
    let registry = &raw mut phantom.registry;
    for card in &mut phantom.cards {
        let context = core::ptr::from_mut(card);
        let device = &raw mut card.device;
        card.device.registry = registry;
        card.device.context = context.cast();
        card.memory = memory::of_card(version, device, context.cast());
    }
    let first = phantom
        .cards
        .first_mut()
        .map_or(null_mut(), |card| &raw mut card.device);
    phantom.host_memory = memory::of_host(version, first);
    phantom.registry.context = core::ptr::from_mut(phantom).cast();
    phantom
}

fn missing(missing: Missing) -> String {
    match missing {
        Missing::Nothing => {
            "no loaded object shows ggml's functions; an engine that is linked statically hides them: take a \
                             build with shared libraries (cmake -DBUILD_SHARED_LIBS=ON)"
                .to_string()
        }
        Missing::Several => {
            "ggml is loaded twice in this process, and there is no telling which one asks".to_string()
        }
        Missing::Functions(names) => format!("this ggml lacks {}", names.join(", ")),
    }
}

/// An environment variable; `None` if it is unset or empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    let name = CString::new(name).ok()?;
    // SAFETY: a C string; ggml's loader reads the environment in the same way.
    let value: *const c_char = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: null, or a C string of the environment.
    let value = (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })?;
    let text = value.to_string_lossy().into_owned();
    (!text.is_empty()).then_some(text)
}
