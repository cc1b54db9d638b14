//! Formats in which separate processes exchange data: names, texts, and shared-memory layouts.
//!
//! - [`cache`]: the layout of an engine's KV cache in its allocation.
//! - [`mod@env`]: names of environment variables.
//! - [`control`]: llama-server's control channel.
//! - [`options`]: the line of options for guard, the preloaded library.
//! - [`page`]: the shared file in which a guarded process reports its figures.
//! - [`size`]: sizes in the messages of the preloaded libraries.
//! - [`tree`]: the shared ledger in which all processes of one command claim their budget.
//! - [`trace`]: the record format of guard's trace.
//!
//! The crate has no dependency, allocates nothing and makes no system call.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

/// Declares an enum whose variants have the numbers that files hold, with both directions of the conversion.
macro_rules! codes {
    ($(#[$meta:meta])* $name:ident: $number:ty { $($(#[$doc:meta])* $variant:ident = $code:literal,)* }) => {
        $(#[$meta])*
        #[repr($number)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant = $code,)*
        }

        impl $name {
            /// The variant with this number, if this version knows it.
            pub const fn of(code: $number) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }

            pub const fn code(self) -> $number {
                match self {
                    $(Self::$variant => $code,)*
                }
            }
        }
    };
}

pub mod cache;
pub mod control;
pub mod env;
pub mod options;
pub mod page;
pub mod size;
mod sync;
pub mod trace;
pub mod tree;

// Tests of the public interface, in this binary because each binary more is linked and stored by itself.
#[cfg(test)]
extern crate self as plimsoll_wire;
#[cfg(test)]
#[path = "../tests/runner.rs"]
mod runner;
