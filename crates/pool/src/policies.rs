//! The policies, one file each.

mod direct;
mod ours;

pub use direct::Direct;
pub use ours::{Options, Ours};
