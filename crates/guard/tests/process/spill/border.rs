//! Tests of copies and memsets across the border of a spilled range (device memory followed by host memory).

use super::run::{MIB, Ran, Run};

/// A range of 300 MiB of which 70 are on the card, and a second one of which 40 are.
fn border(fake: &str) -> Ran {
    let options = format!("budget={} spill={}", 112 * MIB, 1024 * MIB);
    Run::of("border.c", fake, &options).run("300 70 40")
}

#[test]
fn every_way_to_copy_and_to_fill_is_right_on_a_driver_that_crosses_the_border() {
    let ran = border("total=4G");
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.lines.join("\n"), ran.errors);
    assert!(ran.lines.len() > 35);
    assert_eq!(ran.violations(), [""; 0]);
    // Each copy of the program's is one copy of the driver's.
    assert_eq!(ran.calls("cuMemcpy2D_v2").len(), 4);
    assert_eq!(ran.calls("cuMemcpy3D_v2").len(), 8);
    assert_eq!(ran.calls("cuMemcpyBatchAsync").len(), 2);
}

#[test]
fn every_way_to_copy_and_to_fill_is_right_on_a_driver_that_refuses_to_cross_it() {
    let ran = border("total=4G across=0");
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.lines.join("\n"), ran.errors);
    assert_eq!(ran.violations(), [""; 0]);
    assert!(
        ran.errors.contains("70 MiB of it is on the card")
            && ran.errors.contains("40 MiB of it is on the card")
    );
    assert!(ran.calls("cuMemcpy2D_v2").len() > 4);
    assert!(ran.calls("cuMemcpy3D_v2").len() > 8);
}

#[test]
fn without_a_border_nothing_is_cut() {
    let options = format!("budget={} spill={}", 2048 * MIB, 1024 * MIB);
    let ran = Run::of("border.c", "total=4G across=0", &options).run("300 70 40");
    assert_eq!(ran.code, Some(0), "{}", ran.lines.join("\n"));
    assert_eq!(ran.calls("cuMemcpy2D_v2").len(), 4);
}
