//! Hooks of calls that wait for the card, such as `cuStreamSynchronize`.
//!
//! After the wait, other processes' requests for idle memory are handled. This library has no thread, and a
//! program that replays graphs makes few calls except waits.

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
