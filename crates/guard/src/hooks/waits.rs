//! Replaces the calls that wait for the card, such as `cuStreamSynchronize`, so that guard can act while it
//! is idle.
//!
//! After the wait, memory of the program may be exchanged between card and host, and guard answers other
//! processes' requests for idle memory. Guard has no thread of its own, and many programs make few other
//! driver calls.

use crate::driver::{Context, CuResult, CuStream, SUCCESS};
use crate::hooks::hooks;
use crate::ladder;
use crate::spill::exchange;

hooks! {
    in CUDA;

    fn cuStreamSynchronize / cuStreamSynchronize_ptsz | hipStreamSynchronize | hipStreamSynchronize_spt = "cuStreamSynchronize" since 2000 (stream: CuStream) calls real {
        over(real(stream))
    }

    fn cuCtxSynchronize | hipDeviceSynchronize | hipCtxSynchronize = "cuCtxSynchronize" since 2000 () calls real {
        over(real())
    }

    fn cuCtxSynchronize_v2 = "cuCtxSynchronize" since 13000 (context: Context) calls real {
        over(real(context))
    }
}

fn over(result: CuResult) -> CuResult {
    if result == SUCCESS {
        exchange::at_safe_point();
    }
    ladder::answer();
    result
}
