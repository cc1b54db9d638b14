//! What people see: plans and replays as text and as pictures. Nothing here decides or prints; it turns values into
//! text.

mod advice;
mod bar;
mod chart;
mod course;
mod page;
mod plan;
mod replay;
mod soak;
mod svg;

pub(crate) use advice::advice;
pub(crate) use course::course;
pub(crate) use plan::plan;
pub(crate) use replay::replay;
pub(crate) use soak::{SoakReport, lasted};
pub(crate) use svg::svg;
