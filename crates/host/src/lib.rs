//! Parses a Linux host's memory state (`/proc`, `/sys`, tegrastats), and plans how to free memory.
//!
//! A damaged file gives fewer values, never a panic and never a wrong number.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod allowance;
mod board;
mod buddyinfo;
pub mod cgroup;
mod fields;
mod l4t;
mod meminfo;
pub mod nvmap;
mod pagetypeinfo;
mod snapshot;
mod steps;
mod tegrastats;
mod zoneinfo;

pub use allowance::{Allowance, AllowanceGate, allowance};
pub use board::{Chip, Driver};
pub use buddyinfo::{BuddyInfo, ZoneBlocks};
pub use cgroup::CgroupLimit;
pub use l4t::{NvmapFault, Release};
pub use meminfo::MemInfo;
pub use pagetypeinfo::{FreeOfType, MigrateType, PageTypeInfo};
pub use snapshot::{HostSnapshot, ProcTree, Unseen, limits};
pub use steps::{
    Baseline, FutileSteps, OrderBlocks, PlannedStep, Privileges, ReclaimGoal, ReclaimPlan, ReclaimStep,
    StepVerdict, course,
};
pub use tegrastats::TegraStats;
pub use zoneinfo::{Zone, ZoneInfo};

// Tests of the public interface, in this binary because each binary more is linked and stored by itself.
#[cfg(test)]
extern crate self as plimsoll_host;
#[cfg(test)]
#[path = "../tests/runner.rs"]
mod runner;
