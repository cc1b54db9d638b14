//! Whether guard acts: not before the driver is up, not without `PLIMSOLL_GUARD`, not in a forked child.
//!
//! The flag that every hook asks lies in a page of memory that the kernel empties in a forked child (MADV_WIPEONFORK), so the
//! question costs two loads and no system call, and a child can never work on locks and counts that were its parent's. Where the
//! kernel cannot do that, the process id is compared. Guard arms itself once; if something is not as expected it never does, and
//! says so. Of several threads in their first `cuInit` one arms guard and the others wait for it, so that nothing is allocated
//! that is not counted; not for ever, because a thread may be in `cuInit` while it holds the loader's lock, which arming needs.

use alloc::boxed::Box;
use core::ffi::{CStr, c_char};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32};

use plimsoll_wire::env;
use plimsoll_wire::options::Options;
use plimsoll_wire::page::State;

use crate::account;
use crate::say::say;
use crate::trace;

/// Lies in the page that a fork empties.
#[derive(Debug)]
struct Flag {
    armed: AtomicBool,
    /// The kernel does not empty it: compare process ids.
    compare: AtomicBool,
}

static FLAG: AtomicPtr<Flag> = AtomicPtr::new(null_mut());
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// How far arming has come.
static STAGE: AtomicU32 = AtomicU32::new(UNTOUCHED);
const UNTOUCHED: u32 = 0;
const AT_WORK: u32 = 1;
const DONE: u32 = 2;
/// The thread that is at work on it.
static WORKER: AtomicI32 = AtomicI32::new(0);
static OPTIONS: AtomicPtr<Options> = AtomicPtr::new(null_mut());

/// Whether hooks act.
#[inline]
pub(crate) fn armed() -> bool {
    // SAFETY: null, or the flag that `raise` made and nobody unmaps.
    let Some(flag) = (unsafe { FLAG.load(Acquire).as_ref() }) else {
        return false;
    };
    flag.armed.load(Acquire) && (!flag.compare.load(Relaxed) || same_process())
}

#[cold]
fn same_process() -> bool {
    PROCESS.load(Relaxed) == process()
}

/// Whether this is a child of the process that armed itself: its locks and counts are not to be touched.
pub(crate) fn forked() -> bool {
    !armed() && PROCESS.load(Relaxed) != 0 && !same_process()
}

pub(crate) fn process() -> i32 {
    // SAFETY: getpid takes nothing and cannot fail.
    unsafe { libc::getpid() }
}

/// Whether the environment asks for guard at all; read once.
pub(crate) fn wanted() -> bool {
    const UNREAD: u32 = 0;
    const NO: u32 = 1;
    const YES: u32 = 2;
    static WANTED: AtomicU32 = AtomicU32::new(UNREAD);
    match WANTED.load(Relaxed) {
        UNREAD => {
            let wanted = variable(env::GUARD).is_some();
            WANTED.store(if wanted { YES } else { NO }, Relaxed);
            wanted
        }
        state => state == YES,
    }
}

/// What guard was asked to do.
pub(crate) fn options() -> &'static Options {
    static NONE: Options = Options::NONE;
    // SAFETY: null, or options that were leaked.
    unsafe { OPTIONS.load(Acquire).as_ref() }.unwrap_or(&NONE)
}

/// The driver is up.
pub(crate) fn initialised() {
    if !wanted() {
        return;
    }
    match STAGE.compare_exchange(UNTOUCHED, AT_WORK, AcqRel, Acquire) {
        Ok(_) => {
            WORKER.store(thread(), Relaxed);
            begin();
            STAGE.store(DONE, Release);
        }
        Err(AT_WORK) if WORKER.load(Relaxed) != thread() => let_it_end(),
        Err(_) => {}
    }
}

/// Waits for the thread that arms guard, at most a second.
#[cold]
fn let_it_end() {
    const NAPS: u32 = 10_000;
    static NAP: libc::timespec = libc::timespec {
        tv_sec: 0,
        tv_nsec: 100_000,
    };
    for _ in 0..NAPS {
        if STAGE.load(Acquire) == DONE {
            return;
        }
        // SAFETY: a time to sleep; what is left of it when a signal comes is nobody's business.
        unsafe { libc::nanosleep(&raw const NAP, null_mut()) };
    }
}

fn thread() -> i32 {
    // SAFETY: gettid takes nothing and cannot fail; older C libraries have no function for it.
    let number = unsafe { libc::syscall(libc::SYS_gettid) };
    i32::try_from(number).unwrap_or(0)
}

fn begin() {
    let Some(line) = variable(env::GUARD) else { return };
    let Ok(line) = line.to_str() else {
        say!("{} is not text; this process runs unguarded", env::GUARD);
        return;
    };
    match Options::read(line) {
        Ok(options) => OPTIONS.store(Box::into_raw(Box::new(options)), Release),
        Err(error) => {
            say!("{error}; this process runs unguarded");
            return;
        }
    }
    if !account::open(options()) {
        return;
    }
    trace::open();
    if raise() {
        account::page().state.store(State::Armed as u32, Release);
    }
}

fn raise() -> bool {
    const PAGE: usize = 4096;
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
        say!("no memory for a page; this process runs unguarded");
        return false;
    }
    // SAFETY: the page was mapped just now, with room and alignment for a flag; zeroes are a valid one.
    let flag = unsafe { &*page.cast::<Flag>() };
    // SAFETY: advice on our own page.
    let wiped = unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) } == 0;
    PROCESS.store(process(), Relaxed);
    flag.compare.store(!wiped, Relaxed);
    flag.armed.store(true, Release);
    FLAG.store(page.cast(), Release);
    true
}

/// A variable of the environment; a string that nobody changes by the time CUDA starts.
pub(crate) fn variable(name: &str) -> Option<&'static CStr> {
    let mut text = [0_u8; 64];
    text.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    if name.len() == text.len() {
        return None;
    }
    // SAFETY: the text ends in zero, since it has more places than the name.
    let value = unsafe { libc::getenv(text.as_ptr().cast::<c_char>()) };
    // SAFETY: null, or a C string of the environment.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}
