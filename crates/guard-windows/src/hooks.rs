//! Functions of CUDA that guard replaces, and how a program comes to call the replacements.
//!
//! A program finds a function in its import table, by `GetProcAddress`, or by `cuGetProcAddress`. Each of
//! these is asked here for a replacement.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire};

mod driver;
mod graphs;
mod processes;
mod runtime;

pub(crate) use self::processes::{get_procedure, replacement as of_system};

/// A function and its replacement.
#[derive(Debug)]
pub(crate) struct Hook {
    name: &'static str,
    /// The name by which `cuGetProcAddress` is asked for it.
    asked: &'static str,
    replacement: usize,
    original: &'static AtomicUsize,
}

/// Defines replacements of CUDA's functions; `real` is the function itself. A call from within another
/// replaced one passes through: the runtime allocates through the driver, and the memory counts once.
macro_rules! hooks {
    ($(fn $name:ident = $asked:literal ($($argument:ident: $type:ty),*) calls $real:ident $body:block)*) => {
        $(
            mod $name {
                pub(super) static ORIGINAL: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
            }

            unsafe extern "C" fn $name($($argument: $type),*) -> $crate::driver::CuResult {
                let $real = |$($argument: $type),*| {
                    let address = $name::ORIGINAL.load(std::sync::atomic::Ordering::Acquire);
                    // SAFETY: the function that the program would have called, with its arguments.
                    unsafe {
                        std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> $crate::driver::CuResult>(
                            address,
                        )($($argument),*)
                    }
                };
                let Some(_outermost) = $crate::hooks::Outermost::enter() else { return $real($($argument),*) };
                // SAFETY: the caller's own arguments.
                #[allow(unused_unsafe, reason = "some replacements read no pointer")]
                unsafe { $body }
            }
        )*

        pub(super) fn table() -> Vec<$crate::hooks::Hook> {
            vec![$($crate::hooks::Hook {
                name: stringify!($name),
                asked: $asked,
                replacement: ($name as unsafe extern "C" fn($($type),*) -> $crate::driver::CuResult
                    as *const std::ffi::c_void)
                    .expose_provenance(),
                original: &$name::ORIGINAL,
            }),*]
        }
    };
}

use hooks;

fn table() -> &'static [Hook] {
    static TABLE: OnceLock<Vec<Hook>> = OnceLock::new();
    TABLE.get_or_init(|| [driver::table(), graphs::table(), runtime::table()].into_iter().flatten().collect())
}

/// The replacement of an exported function at an address. `None` for all others, and for a second copy of a
/// library, whose memory is counted in the driver.
pub(crate) fn replacement(name: &str, address: usize) -> Option<usize> {
    table().iter().find(|hook| hook.name == name)?.at(address)
}

/// The same by the name that `cuGetProcAddress` is asked for, which has versions.
fn replacement_asked(name: &str, address: usize) -> Option<usize> {
    let mut hooks = table().iter().filter(|hook| hook.asked == name);
    hooks.find_map(|hook| hook.at(address))
}

impl Hook {
    fn at(&self, address: usize) -> Option<usize> {
        let known = self.original.compare_exchange(0, address, AcqRel, Acquire);
        (known.is_ok() || known == Err(address)).then_some(self.replacement)
    }
}

thread_local! {
    static IS_WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// The outermost call of a replaced function on this thread.
#[derive(Debug)]
pub(crate) struct Outermost;

impl Outermost {
    pub(crate) fn enter() -> Option<Self> {
        // A thread that ends has no storage left; its calls pass through.
        let was_within = IS_WITHIN.try_with(|within| within.replace(true)).unwrap_or(true);
        // Lazily: one that is made and dropped would end the outer one.
        (!was_within).then(|| Self)
    }
}

impl Drop for Outermost {
    fn drop(&mut self) {
        let _ = IS_WITHIN.try_with(|within| within.set(false));
    }
}
