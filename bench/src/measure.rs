//! Parts of a benchmark run, such as added latency or throughput. Each measures the servers under test and
//! returns rows of the report.

pub(crate) mod paired;
pub(crate) mod startup;
pub(crate) mod streams;
pub(crate) mod swap;
pub(crate) mod throughput;
