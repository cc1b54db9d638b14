//! Formats the reports about plans, load tests and recordings.

// One module per report; what several reports share is in the `report` crate.
#[cfg(unix)]
mod check;
mod fit;
mod paper;
mod plan;
#[cfg(unix)]
mod status;
#[cfg(unix)]
mod together;
#[cfg(unix)]
mod top;
mod vllm;

#[cfg(unix)]
pub(crate) use check::check;
pub(crate) use fit::fit;
pub(crate) use paper::Paper;
pub(crate) use plan::plan;
#[cfg(unix)]
pub(crate) use status::{download, in_a_line, marks, server, status, yields};
#[cfg(unix)]
pub(crate) use together::{TogetherReport, TogetherRow};
#[cfg(unix)]
pub(crate) use top::{TopCommand, TopEffect, TopScreen};
pub(crate) use vllm::VllmReport;
