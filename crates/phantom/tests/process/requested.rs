//! Tests of the answers that phantom (the stand-in for CUDA) gives to a CUDA backend, for each version of the
//! CUDA runtime.

use std::os::unix::process::ExitStatusExt;

use crate::runner::backend::{H200, run};

#[test]
fn every_version_of_the_runtime_sees_the_cards_that_were_named() {
    let cards = format!("{H200};total=24,free=20,cc=8.7,sms=16,vmm=0");
    for version in ["11.0", "12", "13"] {
        let stated = run(version, Some(&cards), "devices");
        assert_eq!(
            stated.out,
            "2 cards, status 0\n\
             NVIDIA H200, cc 9.0 and 9, 132 processors, free 150000000000 of 150754820096, vmm 1, 0000:01:00.0, end 00ee\n\
             phantom, cc 8.7 and 8, 16 processors, free 20 of 24, vmm 0, 0000:02:00.0, end 00ee\n\
             card 99: 101, 1\n",
            "{version}: {}",
            stated.err
        );
        let major = version.split('.').next().unwrap();
        assert!(stated.err.contains(&format!("plimsoll_phantom: CUDA runtime {major}\n")), "{}", stated.err);
    }
}

#[test]
fn without_cards_or_with_cards_that_cannot_be_read_there_is_no_card() {
    for (cards, why) in [(None, "card 0: `` is not key=value"), (Some("total=7"), "card 0: cc= is missing")] {
        let stated = run("13", cards, "devices");
        assert!(stated.out.starts_with("0 cards, status 100\n"), "{}", stated.out);
        assert!(
            stated.err.contains("plimsoll_phantom: no card: ") && stated.err.contains(why),
            "{}",
            stated.err
        );
    }
}

#[test]
fn memory_is_counted_and_the_hosts_is_real() {
    let stated = run("13", Some(H200), "memory");
    let free = 150_000_000_000_u64 - (3 << 30) - (2 << 20);
    assert_eq!(
        stated.out,
        format!(
            "taken 0 0 0, free {free}\ncopies 0 0\ntoo large 2, null 1\ngiven 0 0 0, again 1, nothing 0\n"
        ),
        "{}",
        stated.err
    );
    let taken: Vec<(&str, u64)> = stated
        .events("take")
        .iter()
        .map(|event| (event["kind"].as_str().unwrap(), event["bytes"].as_u64().unwrap()))
        .collect();
    assert_eq!(stated.events("give").len(), 3);
    assert_eq!(taken.len(), 3, "{taken:?}");
    for expected in [("device", 3 << 30), ("host", 1 << 20), ("managed", 1 << 20)] {
        assert!(taken.contains(&expected), "{taken:?}");
    }
}

#[test]
fn device_memory_cannot_be_touched() {
    let stated = run("13", Some(H200), "touch");
    assert_eq!(stated.status.signal(), Some(11), "{}", stated.out);
}

#[test]
fn a_pool_of_virtual_memory_grows_and_is_given_back() {
    let stated = run("12", Some(H200), "pool");
    let free = 150_000_000_000_u64;
    assert_eq!(
        stated.out,
        format!("grain 2097152, free {}, then {free}, card 7: 101, freed 0\n", free - (6 << 20)),
        "{}",
        stated.err
    );
    let sizes: Vec<u64> =
        stated.events("take").iter().map(|event| event["bytes"].as_u64().unwrap()).collect();
    assert_eq!((sizes, stated.events("give").len()), (vec![2 << 20; 3], 3));
}

#[test]
fn launches_products_and_graphs_succeed() {
    let stated = run("13", Some(H200), "work");
    assert_eq!(
        stated.out,
        "objects 1, launched 0, product 0, error 0, out of memory\n\
         a kernel without code: 5 blocks, no fat binary 1\n",
        "{}",
        stated.err
    );
    assert_eq!(stated.events("guess").len(), 1);
}

#[test]
fn each_thread_has_a_card_of_its_own() {
    let stated = run("13", Some(&format!("{H200};{H200}")), "threads");
    assert_eq!(stated.out, "another thread uses card 0\nthis one card 1\n", "{}", stated.err);
}

#[test]
fn a_runtime_inside_of_the_program_is_distinguished() {
    let stated = run("static", Some(H200), "static");
    assert_eq!(stated.out, "cuInit 100\n");
    assert!(stated.err.contains("plimsoll_phantom: static CUDA runtime\n"), "{}", stated.err);
}
