//! Parts of a benchmark run. Each takes targets or a function that starts them, and returns rows of the
//! report.

pub(crate) mod paired;
pub(crate) mod startup;
pub(crate) mod streams;
pub(crate) mod swap;
pub(crate) mod throughput;
