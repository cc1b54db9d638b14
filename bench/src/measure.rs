//! The parts of a run. Each takes targets or a way to start them, and gives rows of the report.

pub(crate) mod paired;
pub(crate) mod startup;
pub(crate) mod streams;
pub(crate) mod swap;
pub(crate) mod throughput;
