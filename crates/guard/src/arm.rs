//! Starts guard in a process: from this moment the preloaded library counts and limits its memory.
//!
//! Guard arms after the first successful `cuInit`, when HIP first sees a card, or after the first list of
//! Vulkan's devices, of a process with `PLIMSOLL_GUARD` set, and never in a forked child.

use alloc::vec::Vec;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32};
use core::time::Duration;

use plimsoll_nostd::lock::Lock;
use plimsoll_wire::page::PageState;

use crate::driver::hip;
use crate::driver::interface::{self, Interface};
use crate::say::{remember_stderr, say};
use crate::state::{CardIndex, ledger, page};
use crate::{clock, process, settings, trace};

mod cards;

pub(crate) use cards::FoundCard;

// The kernel empties the flag's page in a forked child (MADV_WIPEONFORK). Kernels before 4.14 lack this
// feature; there, the PID is compared.
/// The flag in a memory page that a fork empties.
#[derive(Debug)]
struct ArmedFlag {
    armed: AtomicBool,
    /// The kernel does not empty the page, so process numbers have to be compared.
    compare: AtomicBool,
}

static FLAG: AtomicPtr<ArmedFlag> = AtomicPtr::new(null_mut());
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// Progress of arming.
static STAGE: AtomicU32 = AtomicU32::new(UNTOUCHED);
const UNTOUCHED: u32 = 0;
const AT_WORK: u32 = 1;
const DONE: u32 = 2;
/// The thread that arms guard.
static WORKER: AtomicI32 = AtomicI32::new(0);

/// True if the hooks of CUDA and NVML act.
#[inline]
pub(crate) fn by_cuda() -> bool {
    armed() && !interface::is_hip()
}

/// True if the hooks of HIP act. HIP has no call that begins its use, so the first one that is hooked arms.
#[inline]
pub(crate) fn by_hip() -> bool {
    // Not before the cards are entered: what another thread takes meanwhile would be counted nowhere.
    if armed() && interface::is_hip() && STAGE.load(Acquire) == DONE {
        return true;
    }
    settings::wanted() && arm_by_hip()
}

#[cold]
fn arm_by_hip() -> bool {
    static ASKED: AtomicBool = AtomicBool::new(false);
    let may = match STAGE.load(Acquire) {
        UNTOUCHED => true,
        AT_WORK => WORKER.load(Relaxed) != process::thread(),
        // Guard acts for CUDA, or not at all; one look tells whether that has to be reported.
        _ => armed() && !ASKED.swap(true, Relaxed),
    };
    if may && !forked() && hip::has_cards() {
        initialised(Interface::Hip);
    }
    armed() && interface::is_hip() && STAGE.load(Acquire) == DONE
}

/// True if hooks act.
#[inline]
pub(crate) fn armed() -> bool {
    // SAFETY: null, or the flag that `raise` made and that stays mapped.
    let Some(flag) = (unsafe { FLAG.load(Acquire).as_ref() }) else {
        return false;
    };
    flag.armed.load(Acquire) && (!flag.compare.load(Relaxed) || same_process())
}

#[cold]
fn same_process() -> bool {
    PROCESS.load(Relaxed) == process::id()
}

/// True in a forked child of the process that armed itself: its locks and counts must not be touched.
pub(crate) fn forked() -> bool {
    !armed() && PROCESS.load(Relaxed) != 0 && !same_process()
}

/// Enters the cards of CUDA or HIP and arms guard; to be called when the interface can see them.
pub(crate) fn initialised(by: Interface) {
    // DECISION: the library arms once, and if something is unexpected, it stays inactive. Other threads wait
    // for the arming, but at most a second, because a waiting thread may hold the loader's lock.
    if !settings::wanted() {
        return;
    }
    match STAGE.compare_exchange(UNTOUCHED, AT_WORK, AcqRel, Acquire) {
        Ok(_) => {
            WORKER.store(process::thread(), Relaxed);
            interface::choose(by);
            begin();
            STAGE.store(DONE, Release);
        }
        Err(AT_WORK) if WORKER.load(Relaxed) != process::thread() => wait_for_worker(),
        Err(DONE) if by != interface::chosen() => say_other(by),
        // Done, or this thread is inside its own arming: guard's calls may reach `cuInit` again.
        Err(_) => {}
    }
}

/// Reports once that the program uses cards by a second interface.
#[cold]
fn say_other(by: Interface) {
    static STATED: AtomicBool = AtomicBool::new(false);
    if armed() && !STATED.swap(true, Relaxed) {
        let (first, other) = (interface::chosen().name(), by.name());
        say!("the program uses {first} and {other}; memory that it takes by {other} is not guarded");
    }
}

/// Waits for the thread that arms guard, at most a second.
#[cold]
fn wait_for_worker() {
    const PAUSES: u32 = 10_000;
    const PAUSE: Duration = Duration::from_micros(100);
    for _ in 0..PAUSES {
        if STAGE.load(Acquire) == DONE {
            return;
        }
        clock::sleep(PAUSE);
    }
}

fn begin() {
    let Some(found) = cards::of_interface() else { return };
    for (device, index) in (0..).zip(enter(&found)) {
        if let Some(index) = index {
            index.set_device(device);
        }
    }
}

/// Enters the cards of an interface, and arms guard with the first one. The index of each card; None for a
/// card that is not guarded.
pub(crate) fn enter(found: &[FoundCard]) -> Vec<Option<CardIndex>> {
    static ENTERING: Lock<Progress> = Lock::new(Progress::Untouched);
    let mut progress = ENTERING.hold();
    let entered = match *progress {
        _ if forked() => None,
        Progress::Untouched => first(found),
        Progress::Armed => Some(cards::add(found)),
        Progress::Failed => None,
    };
    *progress = if entered.is_some() { Progress::Armed } else { Progress::Failed };
    entered.unwrap_or_else(|| found.iter().map(|_| None).collect())
}

/// What became of the first attempt to arm guard.
#[derive(Clone, Copy, Debug)]
enum Progress {
    Untouched,
    Armed,
    Failed,
}

fn first(found: &[FoundCard]) -> Option<Vec<Option<CardIndex>>> {
    if !settings::read() {
        return None;
    }
    let entered = cards::create(found);
    if !ledger::join(settings::options()) {
        return None;
    }
    remember_stderr();
    trace::open();
    if !raise() {
        return None;
    }
    page().state.store(PageState::Armed.code(), Release);
    Some(entered)
}

fn raise() -> bool {
    const PAGE: usize = 4096;
    // A page of its own: MADV_WIPEONFORK works on whole pages of private anonymous memory.
    // SAFETY: new memory, ours alone.
    let page = unsafe {
        libc::mmap(
            null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        say!("cannot allocate memory for guard's counters; this process runs unguarded");
        return false;
    }
    // SAFETY: the page was mapped just now, with room and alignment for a flag; zeroes are a valid one.
    let flag = unsafe { &*page.cast::<ArmedFlag>() };
    // SAFETY: advice on our own page.
    let wiped = unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) } == 0;
    PROCESS.store(process::id(), Relaxed);
    flag.compare.store(!wiped, Relaxed);
    flag.armed.store(true, Release);
    FLAG.store(page.cast(), Release);
    true
}
