//! What neighbours under guard hold idle in their pools.
//!
//! The page has a plea from guard to the daemon and a budget from the daemon to guard; it has no word by which a program that
//! is not asking for memory can be told to give idle memory back. So this is said, not done.

use std::fs;

use plimsoll_core::bytes::Bytes;

use crate::guard::{page_folders, read_pages};

/// A guarded process with idle memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    pub pid: u32,
    pub name: Option<String>,
    pub idle: Bytes,
}

/// The guarded processes of this user that hold something idle, the largest first.
pub fn neighbours() -> Vec<Neighbour> {
    let pages = page_folders().into_iter().flat_map(|folder| read_pages(&folder));
    let mut found: Vec<Neighbour> = pages
        .filter_map(|page| {
            let idle = page.cards().iter().map(|card| Bytes::new(card.idle)).sum();
            let name = fs::read_to_string(format!("/proc/{}/comm", page.pid)).ok()?;
            Some(Neighbour {
                pid: page.pid,
                name: Some(name.trim().to_owned()),
                idle,
            })
        })
        .filter(|neighbour| !neighbour.idle.is_zero())
        .collect();
    found.sort_by_key(|neighbour| std::cmp::Reverse(neighbour.idle));
    found
}
