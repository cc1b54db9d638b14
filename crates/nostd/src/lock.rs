//! Mutual exclusion lock of four bytes, on a futex, which works in any process and before `main`.
//!
//! If a process forks while another thread holds the lock, the lock stays held in the child.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::null;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const FREE: u32 = 0;
const OCCUPIED: u32 = 1;
/// Held, and at least one thread sleeps on it.
const AWAITED: u32 = 2;
/// Attempts before a thread goes to sleep. Most critical sections are map look-ups of well under a
/// microsecond, and a futex call costs more than that.
const SPINS: u32 = 100;

/// A value and the lock that protects it.
#[derive(Debug)]
pub struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a LockGuard only, of which there is one at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// Exclusive access to the value of a [`Lock`]; releases the lock when dropped.
///
/// A guard may be shared between threads only where the value may:
///
/// ```
/// fn shared_between_threads<T: Sync>() {}
/// shared_between_threads::<plimsoll_nostd::lock::LockGuard<'static, u32>>();
/// ```
///
/// ```compile_fail,E0277
/// fn shared_between_threads<T: Sync>() {}
/// shared_between_threads::<plimsoll_nostd::lock::LockGuard<'static, std::cell::Cell<u32>>>();
/// ```
#[derive(Debug)]
pub struct LockGuard<'a, T> {
    lock: &'a Lock<T>,
    // `&Lock<T>` alone would be Sync for every `T: Send`, and a shared guard hands out `&T`.
    value: PhantomData<&'a mut T>,
}

impl<T> Lock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock and takes it.
    pub fn hold(&self) -> LockGuard<'_, T> {
        if self.state.compare_exchange(FREE, OCCUPIED, Acquire, Relaxed).is_err() {
            self.wait();
        }
        self.guard()
    }

    /// Takes the lock if it is free at this moment.
    pub fn try_hold(&self) -> Option<LockGuard<'_, T>> {
        let taken = self.state.compare_exchange(FREE, OCCUPIED, Acquire, Relaxed);
        // Lazily: a guard that is built and dropped would release a lock that another thread holds.
        taken.is_ok().then(|| self.guard())
    }

    fn guard(&self) -> LockGuard<'_, T> {
        LockGuard { lock: self, value: PhantomData }
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..SPINS {
            if self.state.compare_exchange_weak(FREE, OCCUPIED, Acquire, Relaxed).is_ok() {
                return;
            }
            core::hint::spin_loop();
        }
        // A thread that has slept cannot know whether others still do, so it takes the lock as AWAITED. One
        // wake-up too many at the release costs a system call; one too few would leave a sleeper for ever.
        while self.state.swap(AWAITED, Acquire) != FREE {
            // SAFETY: the futex is our own live word; a wake-up without cause is allowed for.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.state.as_ptr(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    AWAITED,
                    null::<libc::timespec>(),
                )
            };
        }
    }
}

impl<T> Drop for LockGuard<'_, T> {
    fn drop(&mut self) {
        if self.lock.state.swap(FREE, Release) == AWAITED {
            // SAFETY: as above; one sleeper is woken.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.lock.state.as_ptr(),
                    libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                    1,
                )
            };
        }
    }
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: we hold the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: we hold the lock.
        unsafe { &mut *self.lock.value.get() }
    }
}
