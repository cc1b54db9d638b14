//! Hooks of calls that wait for the card, such as `cuStreamSynchronize`. After the wait, guard (this library)
//! handles other processes' requests for idle memory.
//!
//! Another process may request idle memory through this process's page (a shared-memory file). Guard has no
//! thread, so it handles such requests only during the program's own calls. A program that replays graphs
//! makes few calls except waits, and the card is idle when a wait ends.

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
