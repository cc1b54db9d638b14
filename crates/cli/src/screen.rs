//! Formats the reports about plans, load tests and recordings.

// One module per report; what several reports share is in the `report` crate.
mod bar;
mod check;
mod fit;
mod html;
mod paper;
mod plan;
mod status;
mod top;

pub(crate) use bar::{svg, verdict};
pub(crate) use check::check;
pub(crate) use fit::fit;
pub(crate) use html::html;
pub(crate) use paper::Paper;
pub(crate) use plan::plan;
pub(crate) use status::{download, in_a_line, marks, server, status, yields};
pub(crate) use top::{TopCommand, TopEffect, TopScreen};
