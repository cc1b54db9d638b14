//! Looks at the machine and its files, and changes nothing.

pub mod headers;
