//! Hooks of waits for the card, which are safe points for requests from outside.
//!
//! A program that replays graphs calls little else, and the card has nothing to do when a wait ends.

use crate::driver::{CuResult, CuStream};
use crate::hooks::hooks;
use crate::ladder;

hooks! {
    in CUDA;

    fn cuStreamSynchronize / cuStreamSynchronize_ptsz = "cuStreamSynchronize" since 2000 (stream: CuStream) calls real {
        over(real(stream))
    }

    fn cuCtxSynchronize = "cuCtxSynchronize" since 2000 () calls real {
        over(real())
    }
}

fn over(result: CuResult) -> CuResult {
    ladder::answer();
    result
}
