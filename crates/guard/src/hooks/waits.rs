//! Hooks of waits for the card, used as safe points for other processes' requests.
//!
//! Another process may request idle memory through this process's page (a shared-memory file), and guard
//! (this library) acts on such requests only during the program's own calls. A program that replays graphs
//! makes few other calls, and the card is idle when a wait ends.

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
