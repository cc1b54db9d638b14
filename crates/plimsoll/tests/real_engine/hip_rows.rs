//! Tests of the allocations of a real HIP backend on simulated cards, against those recorded from Debian's
//! llama.cpp 0.7.0 (`data/hip`).

use std::process::Command;

use plimsoll_planner::exact::{BufferKind, BufferPlace, Transcript};

use super::debian;
use super::vulkan_rows::{Row, requested, rows};
use crate::built::built;

const CARD: &str = "total=103079215104,cc=8.9,name=Radeon X,gfx=gfx1100";
const VERSION: &str = "version: 0.7.0 (build 11669";

fn buffers(log: &str) -> Vec<(BufferPlace, BufferKind, u64)> {
    let buffers = Transcript::read(log).buffers;
    buffers.iter().map(|buffer| (buffer.place, buffer.kind, buffer.bytes.get())).collect()
}

#[test]
fn long_each_recorded_model_asks_of_amds_runtime_what_was_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let phantom = built("libplimsoll_phantom.so", "plimsoll-phantom");
    let libraries = debian::HIP.runtime(folder.path(), &phantom);
    let engine = || {
        let mut command = Command::new(debian::HIP.server());
        command.env("LD_LIBRARY_PATH", &libraries);
        command
    };
    let stated = engine().arg("--version").output().unwrap();
    let stated = String::from_utf8_lossy(&[stated.stdout, stated.stderr].concat()).into_owned();
    assert!(stated.contains(VERSION), "sid has another llama.cpp, whose rows are not recorded: {stated}");
    let rows = rows("hip/debian-0.7.0.json");
    assert_eq!(rows.len(), 45);
    let wrong = |row: &Row| {
        let (events, log) = requested(engine(), row, "ROCm0", CARD, folder.path());
        let equal = events == row.events && buffers(&log) == buffers(&row.log.join("\n"));
        (!equal).then(|| format!("{} {}: {events:?} for {:?}\n{log}", row.model, row.flags, row.events))
    };
    let wrong: Vec<String> = rows.iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}
