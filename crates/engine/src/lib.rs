//! Starts engines, watches them, and stops them; chooses their program, arguments and visible cards.
#![forbid(unsafe_code)]

#[cfg(unix)]
mod address;
#[cfg(unix)]
mod argv;
#[cfg(unix)]
mod child;
#[cfg(unix)]
mod control;
#[cfg(unix)]
mod end;
mod environment;
#[cfg(unix)]
mod hang_check;
#[cfg(unix)]
mod health;
mod isolation;
pub mod program;
#[cfg(unix)]
mod spec;
#[cfg(test)]
#[cfg(unix)]
mod tests;
#[cfg(unix)]
mod work;

#[cfg(unix)]
pub use address::{EngineAddress, free_port};
#[cfg(unix)]
pub use argv::random_key;
#[cfg(unix)]
pub use child::{Child, ChildEnded, ChildEvent};
#[cfg(unix)]
pub use end::EndCause;
pub use environment::{
    child_environment, chooses_cards, inherited, show_to_others, show_to_vulkan, shows_vulkan,
};
pub use isolation::{Visible, VisibleCards, renumber};
#[cfg(unix)]
pub use spec::{ChildSpec, Readiness, StopWay};
#[cfg(unix)]
pub use work::EngineWork;
