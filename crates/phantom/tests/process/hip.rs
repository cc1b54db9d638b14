//! Tests of the answers that phantom (the stand-in for a GPU) gives to an engine on ROCm.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::runner::artefact;
use crate::runner::backend::{Stated, stated};

const CARDS: &str = "total=24,cc=8.9,name=A;total=8589934592,cc=8.9,name=B,gfx=gfx90a,sms=104";

/// What the program says over these cards, with variables that hide some of them.
fn requested(hidden: &[(&str, &str)]) -> Stated {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("libamdhip64.so.6");
    symlink(artefact::phantom(), &name).unwrap();
    let mut command = Command::new(artefact::hip());
    command.arg(&name).env("LD_LIBRARY_PATH", folder.path());
    for variable in ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"] {
        command.env_remove(variable);
    }
    command.envs(hidden.iter().copied());
    stated(command, Some(CARDS))
}

#[test]
fn every_card_that_was_named_is_a_card_of_hips_with_its_memory() {
    let stated = requested(&[]);
    assert_eq!(
        stated.out,
        "2 cards, status 0\n\
         A gfx1100, 32 lanes, 132 processors, 24 bytes, cooperative 1, virtual memory 0, end ee\n\
         B gfx90a, 64 lanes, 104 processors, 8589934592 bytes, cooperative 1, virtual memory 0, end ee\n\
         card 9: 101 101, nowhere 1\n\
         taken 0, free 5368709120 of 8589934592\n\
         host 0, too large 2, given 0, again 1\n\
         no room 1, version 0 4\n",
        "{}",
        stated.err
    );
    assert_eq!(stated.err.matches("plimsoll_phantom: ROCm runtime\n").count(), 1, "{}", stated.err);
    let taken = stated.events("take");
    assert_eq!((taken[0]["device"].as_u64(), taken[0]["kind"].as_str()), (Some(1), Some("device")));
}

#[test]
fn a_process_on_rocm_sees_no_card_that_its_variables_hide() {
    let sees = |hidden: &[(&str, &str)]| {
        let out = requested(hidden).out;
        let cards = out.lines().filter_map(|line| line.split_once(" gfx")).map(|(name, _)| name.to_owned());
        (out.split(' ').next().unwrap_or_default().to_owned(), cards.collect::<Vec<String>>())
    };
    let names =
        |names: &[&str]| (names.len().to_string(), names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(sees(&[]), names(&["A", "B"]));
    for variable in ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"] {
        assert_eq!(sees(&[(variable, "1")]), names(&["B"]), "{variable}");
        assert_eq!(sees(&[(variable, "1,0")]), names(&["B", "A"]), "{variable}");
        assert_eq!(sees(&[(variable, "-1")]), names(&[]), "{variable}");
    }
    assert_eq!(sees(&[("ROCR_VISIBLE_DEVICES", "")]), names(&[]));
    assert_eq!(sees(&[("HIP_VISIBLE_DEVICES", ""), ("CUDA_VISIBLE_DEVICES", "")]), names(&["A", "B"]));
    assert_eq!(sees(&[("ROCR_VISIBLE_DEVICES", "1"), ("HIP_VISIBLE_DEVICES", "0")]), names(&["B"]));
    assert_eq!(sees(&[("ROCR_VISIBLE_DEVICES", "1"), ("HIP_VISIBLE_DEVICES", "1")]), names(&[]));
}
