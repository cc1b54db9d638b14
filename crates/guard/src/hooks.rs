//! Functions with which guard replaces those of the CUDA driver and of the HIP runtime, one file for each
//! part of the API.
//!
//! Until `cuInit` has succeeded, or HIP has reported a card, a hook only calls the real function.

// DECISION: functions that CUDA 6.5 and later replaced are not hooked. No program that is so old runs a model
// on a card of today.
pub(crate) mod arrays;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod graphs;
pub(crate) mod hip;
pub(crate) mod info;
pub(crate) mod init;
pub(crate) mod ipc;
pub(crate) mod memory;
pub(crate) mod nvml;
pub(crate) mod pinned;
pub(crate) mod pointer;
pub(crate) mod pools;
pub(crate) mod unified;
pub(crate) mod vmm;
pub(crate) mod waits;

use core::ffi::c_void;

use crate::driver::Slot;

/// Function pointer of any prototype.
pub(crate) type HookFunction = unsafe extern "C" fn();

/// A hook: the function's name, guard's function, and the real one.
#[derive(Debug)]
pub(crate) struct Hook {
    /// Name of the export, with the suffix of its ABI.
    pub(crate) symbol: &'static str,
    /// Name for `cuGetProcAddress`; none for a function of HIP.
    pub(crate) name: &'static str,
    /// The first version of CUDA in which `name` means this function.
    pub(crate) since: i32,
    /// True for the twin that serves programs with per-thread default streams.
    pub(crate) per_thread: bool,
    /// Number of its parameters.
    #[cfg(test)]
    pub(crate) parameters: usize,
    pub(crate) function: HookFunction,
    pub(crate) slot: &'static Slot,
}

impl Hook {
    pub(crate) fn address(&self) -> *mut c_void {
        self.function as *mut c_void
    }
}

pub(crate) use crate::arm::{by_cuda, by_hip};

/// Condition of the hooks that act before guard is armed.
pub(crate) const fn always() -> bool {
    true
}

// DECISION: this macro generates the export, the pointer to the real function and the row in
// `crate::interpose`. So a hook cannot be missing in one of these places.
//
// DECISION: a function of HIP with the parameters of one of CUDA's is a further name of its hook. So both
// interfaces have one body; `hooks::hip` has only what HIP has alone.
/// Declares hooks: `fn SYMBOL / TWIN | HIP = "NAME" since VERSION (arguments) calls REAL { body }`.
/// They act once guard is armed for their interface; with `in LIBRARY when always`, from the start.
///
/// The body may call `REAL`, the real function of the symbol that was called: SYMBOL, its twin or a name in
/// HIP. With `calls (REAL, PER_THREAD)` it also knows whether it is the twin.
macro_rules! hooks {
    (in $library:ident; $($hooks:tt)*) => {
        $crate::hooks::hooks! { in $library when by_cuda; $($hooks)* }
    };

    (in $library:ident when $active:ident; $(
        fn $symbol:ident $(/ $twin:ident)? $(| $hip:ident)* = $name:literal since $since:literal
            $arguments:tt calls $names:tt $body:block
    )*) => {
        pub(crate) mod real {
            #[allow(unused_imports, reason = "some groups of functions use no imported type")]
            use super::*;

            $crate::driver::real! {
                in $library;
                $($symbol $arguments;)*
                $($($twin $arguments;)?)*
            }

            pub(crate) mod hip {
                #[allow(unused_imports, reason = "some groups of functions have no name in HIP")]
                use super::*;

                $crate::driver::real! {
                    in HIP;
                    $($($hip $arguments;)*)*
                }
            }
        }

        $(
            $crate::hooks::hooks!(@export $active [real] $symbol $arguments false $names $body);
            $($crate::hooks::hooks!(@export $active [real] $twin $arguments true $names $body);)?
            $crate::hooks::hooks!(@hip [$($hip)*] $arguments $names $body);
        )*

        pub(crate) const TABLE: &[$crate::hooks::Hook] = &[
            $($crate::hooks::hooks!(@row [real] $symbol $name $since false $arguments),)*
            $($($crate::hooks::hooks!(@row [real] $twin $name $since true $arguments),)?)*
            $($($crate::hooks::hooks!(@row [real::hip] $hip "" 0 false $arguments),)*)*
        ];
    };

    (@hip [$($hip:ident)*] $arguments:tt $names:tt $body:block) => {
        $($crate::hooks::hooks!(@export by_hip [real::hip] $hip $arguments false $names $body);)*
    };

    (@export $active:ident $of:tt $symbol:ident $arguments:tt $twin:literal $real:ident $body:block) => {
        $crate::hooks::hooks!(@export $active $of $symbol $arguments $twin ($real, _twin) $body);
    };

    (@export $active:ident [$($of:ident)::+] $symbol:ident ($($argument:ident: $type:ty),* $(,)?) $twin:literal ($real:ident, $per_thread:ident) $body:block) => {
        /// # Safety
        /// As the driver asks of its callers.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(clippy::too_many_arguments, reason = "the driver's prototypes")]
        pub(crate) unsafe extern "C" fn $symbol($($argument: $type),*) -> $crate::driver::CuResult {
            // SAFETY: the program calls us as it would call the driver; what it promises the driver, it
            // promises us.
            unsafe {
                if !$crate::hooks::$active() {
                    return $($of)::+::$symbol($($argument),*);
                }
                #[allow(unused_variables, reason = "a hook need not call the function that it replaces")]
                let $real = $($of)::+::$symbol;
                let $per_thread = $twin;
                $body
            }
        }
    };

    (@row [$($of:ident)::+] $symbol:ident $name:literal $since:literal $per_thread:literal ($($argument:ident: $type:ty),* $(,)?)) => {
        $crate::hooks::Hook {
            symbol: stringify!($symbol),
            name: $name,
            since: $since,
            per_thread: $per_thread,
            #[cfg(test)]
            parameters: {
                const NAMES: &[&str] = &[$(stringify!($argument)),*];
                NAMES.len()
            },
            // SAFETY: never called before it is cast back to its own type.
            function: unsafe {
                core::mem::transmute::<
                    unsafe extern "C" fn($($type),*) -> $crate::driver::CuResult,
                    $crate::hooks::HookFunction,
                >($symbol)
            },
            slot: &$($of)::+::slots::$symbol,
        }
    };
}

pub(crate) use hooks;
