//! What people see: a plan as text and as a picture. Nothing here decides or prints; it turns values into text.

mod bar;
mod plan;
mod svg;

pub(crate) use plan::plan;
pub(crate) use svg::svg;
