//! A lock of four bytes on a futex.
//!
//! It allocates nothing, registers nothing, and is never held across a call into the driver or the loader. A fork while another
//! thread holds it leaves it locked in the child, which is why a forked child passes everything through (see [`crate::arm`]).

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::ptr::null;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody sleeps on it.
const AWAITED: u32 = 2;
/// Looks at the lock before a thread goes to sleep; what it guards takes well under a microsecond.
const LOOKS: u32 = 100;

#[derive(Debug)]
pub(crate) struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a Held only, of which there is one at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The right to the value; gives the lock back when dropped.
#[derive(Debug)]
pub(crate) struct Held<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            state: AtomicU32::new(FREE),
            value: UnsafeCell::new(value),
        }
    }

    pub(crate) fn hold(&self) -> Held<'_, T> {
        if self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            self.wait();
        }
        Held { lock: self }
    }

    /// The value, if nobody holds it now.
    pub(crate) fn try_hold(&self) -> Option<Held<'_, T>> {
        let got = self.state.compare_exchange(FREE, HELD, Acquire, Relaxed);
        got.is_ok().then_some(Held { lock: self })
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..LOOKS {
            if self
                .state
                .compare_exchange_weak(FREE, HELD, Acquire, Relaxed)
                .is_ok()
            {
                return;
            }
            core::hint::spin_loop();
        }
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

impl<T> Drop for Held<'_, T> {
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

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: we hold the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: we hold the lock.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_addition_of_many_threads_is_lost() {
        let sum = Lock::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..20_000).for_each(|_| *sum.hold() += 1));
            }
        });
        assert_eq!(*sum.hold(), 160_000);
    }
}
