//! What it will cost: bytes on each card and on the host, term by term.
//!
//! One file per term of the sum. Every term says where it comes from; a term nobody knows is unknown, not zero.

mod outcome;

pub use outcome::{CardPlan, EngineInfo, Growth, HostPlan, HostTerms, Plan, Term, Terms};
