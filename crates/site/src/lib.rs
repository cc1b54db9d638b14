//! Shows a plan as HTML, and answers the questions of a page that plans in the browser, in WebAssembly.
//!
//! `plimsoll plan --html` writes [`report`]; the page of `cargo xtask site` shows [`answer`]. Both have the
//! same parts, so there is one renderer. All figures are of `plimsoll-plan`, as on the command line.
#![cfg_attr(not(target_family = "wasm"), forbid(unsafe_code))]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

#[cfg(target_family = "wasm")]
mod abi;
mod bar;
mod facts;
mod message;
mod report;
mod session;

pub use self::bar::{occupied, plan_bar, svg, terms, verdict};
pub use self::message::{Message, NamedFiles};
pub use self::report::{answer, report};
pub use self::session::{Session, SessionError};

/// Contexts of a chart by the formulas, which are the steps of a slider.
pub const POINTS: u64 = 64;
