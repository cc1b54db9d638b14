//! Tests of the answers that phantom (the stand-in for a GPU) gives to Vulkan's loader and to an engine on
//! Vulkan.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use crate::runner::artefact;
use crate::runner::backend::{H200, Stated, stated};

const CARDS: &str =
    "total=150754820096,cc=9.0,name=NVIDIA H200;total=24,cc=8.9,vendor=4098,integrated=1,name=";

fn run(cards: &str, act: &str) -> Stated {
    let mut command = Command::new(artefact::program("vulkan"));
    command.arg(artefact::phantom()).arg(act);
    stated(command, Some(cards))
}

#[test]
fn every_card_that_was_named_is_a_device_of_vulkans() {
    let long = "x".repeat(300);
    let stated = run(&format!("{CARDS}{long}"), "cards");
    assert_eq!(
        stated.out,
        format!(
            "interface 5, 2 cards, status 0\n1000 of a card\nroom for 1: 5, 1\nunknown function 0\n\
             4 matrices of a workgroup, room for 3: 5, 3, 256 invocations\n\
             NVIDIA H200: vendor 10de, type 2, 4 memory types, 150754820096 bytes, end ee\n\
             {}: vendor 1002, type 1, 1 memory types, 24 bytes, end ee\n",
            &long[..255]
        ),
        "{}",
        stated.err
    );
    assert!(run("total=1,cc=9.0,align=3", "cards").out.starts_with("interface 5, 0 cards"));
}

#[test]
fn memory_is_written_down_and_what_the_host_maps_is_real() {
    let stated = run(H200, "memory");
    assert_eq!(
        stated.out,
        "interface 5, 1 cards, status 0\n1000 of a card\ntaken 0 0, too large -2\nmapped 0, beyond everything -5\n\
         a buffer of 1000 takes 1008, one that is not there 0\nfence 0, counter ffffffffffffffff\n",
        "{}",
        stated.err
    );
    let taken =
        stated.events("take").into_iter().map(|event| (event["kind"].clone(), event["bytes"].clone()));
    assert_eq!(
        taken.collect::<Vec<_>>(),
        [("vulkan".into(), (3_u64 << 30).into()), ("host".into(), (1 << 20).into())]
    );
    assert_eq!(stated.events("give").len(), 2);
}

#[test]
fn memory_of_the_card_cannot_be_touched() {
    assert_eq!(run(H200, "touch").status.signal(), Some(11));
}
