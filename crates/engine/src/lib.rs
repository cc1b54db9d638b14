//! Starts engines, watches them, and stops them; chooses their program, arguments and visible cards.
#![forbid(unsafe_code)]

mod address;
mod argv;
mod child;
mod control;
mod end;
mod environment;
mod hang_check;
mod health;
mod isolation;
pub mod program;
mod spec;
#[cfg(test)]
mod tests;
mod work;

pub use address::{EngineAddress, free_port};
pub use argv::random_key;
pub use child::{Child, ChildEnded, ChildEvent};
pub use end::EndCause;
pub use environment::{
    child_environment, chooses_cards, inherited, show_to_others, show_to_vulkan, shows_vulkan,
};
pub use isolation::{Visible, VisibleCards, renumber};
pub use spec::{ChildSpec, Readiness, StopWay};
pub use work::EngineWork;
