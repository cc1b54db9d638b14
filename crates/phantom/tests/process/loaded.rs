//! What a host sees of the plugin that it has loaded.

use crate::host::{H200, Host};

const FREE: u64 = 150_000_000_000;
const TOTAL: u64 = 150_754_820_096;

#[test]
fn a_host_of_either_version_sees_a_cuda_card() {
    for version in [2, 3] {
        let said = Host::new(version).run();
        let expected = format!(
            "\
registry CUDA of 1 devices
CUDA0, NVIDIA H200, type 1, free {FREE} of {TOTAL}, id 0000:01:00.0, async 1 events 1 host 1 ptr 0, \
buffers CUDA0 and CUDA_Host of 128 and 32
device 1 is none
a buffer of 68719476736 leaves {} free
read back: 0 0 0 0
1048576 bytes of the host's are there, host 1 and 0
own 1, other 0
576 x 10 in q8_0: {}
attention: {}, taken 1
orphan: 4, taken 0; absurd: 0, taken 0, offloaded 1; null: taken 0
CUDA0 computes: 0
CUDA0 computes: 0
no graph: 0, empty graph: 0
",
            FREE - (1 << 36),
            612 * 10 + 476,
            // an old build copies in the pool, the third generation behind the result
            128 * 32 * 512 * 4 + if version == 2 { 0 } else { 2 * 2 * 8192 * 8 * 128 },
        );
        assert_eq!(
            (said.out, said.err),
            (expected, String::new()),
            "version {version}"
        );
    }
}

#[test]
fn a_build_number_tells_where_the_copies_are() {
    let attention = |build| {
        let said = Host::new(2).of_build(build).run();
        let line = said
            .out
            .lines()
            .find(|line| line.starts_with("attention"))
            .unwrap()
            .to_owned();
        (line, said.report[0]["evidence"].as_str().unwrap().to_owned())
    };
    let result = 128 * 32 * 512 * 4;
    let given = "the build number given".to_owned();
    assert_eq!(
        attention("8799"),
        (format!("attention: {result}, taken 1"), given.clone())
    );
    let copied = result + 2 * 2 * 8192 * 8 * 128;
    assert_eq!(
        attention("10605"),
        (format!("attention: {copied}, taken 1"), given)
    );
}

#[test]
fn several_cards_are_several_devices() {
    let said = Host::new(3)
        .with_cards(Some(&format!("{H200};total=24,free=20,cc=8.9")))
        .run();
    assert!(
        said.out
            .starts_with("registry CUDA of 2 devices\nCUDA0, NVIDIA H200, "),
        "{}",
        said.out
    );
    assert!(
        said.out
            .contains("\nCUDA1, phantom, type 1, free 20 of 24, id 0000:02:00.0, "),
        "{}",
        said.out
    );
}

#[test]
fn a_card_with_the_hosts_memory_is_told_apart_since_b10605() {
    let kind = |build| {
        let said = Host::new(2)
            .of_build(build)
            .with_cards(Some("total=8,cc=8.7,integrated=1"))
            .run();
        said.out.contains("type 2, free 8 of 8")
    };
    assert_eq!((kind("8799"), kind("10605")), (false, true));
}

#[test]
fn the_report_says_what_was_loaded_made_and_asked_for() {
    let said = Host::new(2).of_build("8799").run();
    let load = said.events("load")[0];
    assert_eq!(
        (load["abi"].as_u64(), load["build"].as_u64()),
        (Some(2), Some(8799))
    );
    assert_eq!(load["ggml"], "0.0.host");
    assert_eq!(load["generation"], "copying");
    assert_eq!(
        (&load["cards"][0]["cc"], &load["cards"][0]["sms"]),
        (&"9.0".into(), &132.into())
    );
    let made: Vec<(&str, u64)> = said
        .events("buffer")
        .iter()
        .map(|event| (event["where"].as_str().unwrap(), event["bytes"].as_u64().unwrap()))
        .collect();
    assert_eq!(made, [("CUDA0", 1 << 36), ("CUDA_Host", 1 << 20)]);
    assert_eq!(said.events("free")[0]["usage"], "weights");
    // one token, then 512: a quantised row; activations and what is left of tiles
    let depth: Vec<[u64; 4]> = said
        .events("depth")
        .iter()
        .map(|event| ["tokens", "live", "legacy", "vmm"].map(|field| event[field].as_u64().unwrap()))
        .collect();
    let (row, tiles, partial) = (4608, 2_377_728, 8_650_752);
    let ahead = |bytes: u64| (bytes * 105 / 100).next_multiple_of(256);
    assert_eq!(
        depth,
        [
            [1, row, ahead(row), 2 << 20],
            [
                512,
                tiles + partial,
                ahead(row) + ahead(tiles) + ahead(partial),
                12 << 20
            ],
        ]
    );
    assert_eq!(
        said.trace,
        format!(
            "Thread,Time,Action,Pointer,Size,Stream\n\
             1,0,allocate,0x1,{row},0x0\n1,0,free,0x1,{row},0x0\n\
             1,0,allocate,0x2,{tiles},0x0\n1,0,allocate,0x3,{partial},0x0\n\
             1,0,free,0x3,{partial},0x0\n1,0,free,0x2,{tiles},0x0\n"
        )
    );
}
