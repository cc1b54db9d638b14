//! What an engine on ROCm is answered.

use std::process::Command;

use crate::artefact;
use crate::backend::said;

#[test]
fn every_card_that_was_told_is_a_card_of_hips_with_its_memory() {
    let mut command = Command::new(artefact::program("hip"));
    command.arg(artefact::phantom());
    let cards = "total=24,cc=8.9,name=A;total=8589934592,cc=8.9,name=B,gfx=gfx90a,sms=104";
    let said = said(command, Some(cards));
    assert_eq!(
        said.out,
        "2 cards, status 0\n\
         A gfx1100, 32 lanes, 132 processors, 24 bytes, cooperative 1, virtual memory 0, end ee\n\
         B gfx90a, 64 lanes, 104 processors, 8589934592 bytes, cooperative 1, virtual memory 0, end ee\n\
         card 9: 101 101, nowhere 1\n\
         taken 0, free 5368709120 of 8589934592\n\
         host 0, too large 2, given 0, again 1\n\
         no room 1, version 0 4\n",
        "{}",
        said.err
    );
    assert_eq!(said.err.matches("plimsoll_phantom: ROCm runtime\n").count(), 1, "{}", said.err);
    let taken = said.events("take");
    assert_eq!((taken[0]["device"].as_u64(), taken[0]["kind"].as_str()), (Some(1), Some("device")));
}
