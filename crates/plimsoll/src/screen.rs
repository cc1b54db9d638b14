//! What people see: plans and replays as text and as pictures. Nothing here decides or prints; it turns values into
//! text.

mod advice;
mod bar;
mod beside;
mod chart;
mod check;
mod course;
mod fit;
mod html;
mod page;
mod plan;
mod record;
mod replay;
mod soak;
mod svg;
mod sweep;

pub(crate) use advice::advice;
pub(crate) use beside::BesideReport;
pub(crate) use check::check;
pub(crate) use course::course;
pub(crate) use fit::fit;
pub(crate) use html::html;
pub(crate) use plan::plan;
pub(crate) use record::{RecordReport, csv};
pub(crate) use replay::replay;
pub(crate) use soak::{SoakReport, lasted};
pub(crate) use svg::svg;
pub(crate) use sweep::{Planned, SweepReport, sweep_head, sweep_row};
