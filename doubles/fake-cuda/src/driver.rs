//! Holds the state of the fake CUDA driver for this process, behind one lock.
//!
//! Each part of the API keeps its state in its own file and stores it here. A forked child has no driver. The
//! real one returns CUDA_ERROR_NOT_INITIALIZED there. In the fake one, the lock may be held by a thread that
//! the child does not have.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::arrays::Arrays;
use crate::blocks::Blocks;
use crate::capture::Captures;
use crate::chunks::Chunks;
use crate::code::{Code, NO_DEVICE, NOT_INITIALIZED, Outcome, UNKNOWN};
use crate::context::Contexts;
use crate::device::{Card, visible_cards};
use crate::events::Events;
use crate::graphs::Graphs;
use crate::modules::Modules;
use crate::pools::Pools;
use crate::replaced::Replaced;
use crate::settings::{complaint, settings};
use crate::space::Space;
use crate::usage::Usage;
use crate::work::Work;

#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) cards: Vec<Card>,
    pub(crate) usage: Usage,
    pub(crate) blocks: Blocks,
    pub(crate) space: Space,
    pub(crate) replaced: Replaced,
    pub(crate) chunks: Chunks,
    pub(crate) contexts: Contexts,
    pub(crate) work: Work,
    pub(crate) events: Events,
    pub(crate) captures: Captures,
    pub(crate) graphs: Graphs,
    pub(crate) pools: Pools,
    pub(crate) arrays: Arrays,
    pub(crate) modules: Modules,
    last_handle: u64,
}

static DRIVER: Mutex<Option<Driver>> = Mutex::new(None);
/// The process that initialised the driver; zero before.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// The driver, locked. It derefs to what [`initialise`] left.
#[derive(Debug)]
pub(crate) struct Locked(MutexGuard<'static, Option<Driver>>);

pub(crate) fn driver() -> Result<Locked, Code> {
    if OWNER.load(Ordering::Acquire) != std::process::id() {
        return Err(NOT_INITIALIZED);
    }
    let locked = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Locked(locked))
}

#[expect(clippy::print_stderr, reason = "a test that mistypes has nowhere else to look")]
pub(crate) fn initialise() -> Outcome {
    if let Some(complaint) = complaint() {
        eprintln!("fake-cuda: {complaint}");
        return Err(UNKNOWN);
    }
    match OWNER.load(Ordering::Acquire) {
        0 => {}
        owner if owner == std::process::id() => return Ok(()),
        _ => return Err(NOT_INITIALIZED),
    }
    let mut driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    if driver.is_none() {
        *driver = Some(Driver::new()?);
        OWNER.store(std::process::id(), Ordering::Release);
    }
    Ok(())
}

impl Driver {
    fn new() -> Result<Self, Code> {
        let cards = visible_cards();
        if cards.is_empty() {
            return Err(NO_DEVICE);
        }
        Ok(Self {
            usage: Usage::open(settings().shared.as_deref())?,
            blocks: Blocks::new()?,
            space: Space::default(),
            replaced: Replaced::default(),
            chunks: Chunks::default(),
            contexts: Contexts::new(cards.len()),
            work: Work::new(),
            events: Events::new(),
            captures: Captures::new(),
            graphs: Graphs::default(),
            pools: Pools::default(),
            arrays: Arrays::new(),
            modules: Modules::default(),
            cards,
            last_handle: 0x1000,
        })
    }

    /// A number that no other handle has.
    pub(crate) fn new_handle(&mut self) -> u64 {
        self.last_handle += 0x10;
        self.last_handle
    }
}

impl Deref for Locked {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        self.0.as_ref().expect("the owner is stored after the driver")
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Driver {
        self.0.as_mut().expect("the owner is stored after the driver")
    }
}
