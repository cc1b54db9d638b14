//! The policies, one file each.

mod direct;

pub use direct::Direct;
